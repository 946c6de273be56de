"""Interleaved Head Attention (arXiv 2602.21371): the mechanism, its theory, its models and its experiments.

Names are loaded when they are first asked for: `import iha` costs nothing, the operator and its layer cost torch, the
models cost transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iha.version import __version__

if TYPE_CHECKING:
    from iha.layers.cache import KVCache
    from iha.layers.interleaved import InterleavedHeadAttention
    from iha.models import IHAConfig, IHAForCausalLM
    from iha.ops import reference
    from iha.ops.interleaved import interleaved_head_attention

__all__ = [
    "IHAConfig",
    "IHAForCausalLM",
    "InterleavedHeadAttention",
    "KVCache",
    "__version__",
    "interleaved_head_attention",
    "reference",
]

_HOME = {
    "IHAConfig": "iha.models",
    "IHAForCausalLM": "iha.models",
    "InterleavedHeadAttention": "iha.layers.interleaved",
    "KVCache": "iha.layers.cache",
    "interleaved_head_attention": "iha.ops.interleaved",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name == "reference":
        value = import_module("iha.ops.reference")
    elif name in ("models", "convert"):
        value = import_module(f"iha.{name}")  # so that `import iha; iha.convert.from_pretrained(...)` works
    else:
        raise AttributeError(f"module 'iha' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
