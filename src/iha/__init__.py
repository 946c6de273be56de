"""Interleaved Head Attention (arXiv 2602.21371): the mechanism, its theory, its models and its experiments.

    iha.InterleavedHeadAttention      the layer, for your own model; iha.KVCache for decoding with it
    iha.interleaved_head_attention    the operator behind it; iha.reference is its definition, line by line
    iha.IHAForCausalLM, iha.IHAConfig the language model, under Hugging Face's contract
    iha.convert.from_pretrained       a Llama, Mistral or Qwen checkpoint as an IHA model with the same logits
    iha.layers, iha.accounting        the mechanisms it is compared with; what they cost

`import iha` loads nothing: each name loads what it needs when it is first used.
"""

# No __all__: with it, help(iha) would print every method of every class that is named here.
from typing import TYPE_CHECKING

from iha.version import __version__ as __version__

if TYPE_CHECKING:
    from iha import accounting as accounting
    from iha import convert as convert
    from iha import layers as layers
    from iha import models as models
    from iha import ops as ops
    from iha.layers.cache import KVCache as KVCache
    from iha.layers.interleaved import InterleavedHeadAttention as InterleavedHeadAttention
    from iha.models import IHAConfig as IHAConfig
    from iha.models import IHAForCausalLM as IHAForCausalLM
    from iha.ops import reference as reference
    from iha.ops.interleaved import interleaved_head_attention as interleaved_head_attention

_HOMES = {
    "IHAConfig": "iha.models",
    "IHAForCausalLM": "iha.models",
    "InterleavedHeadAttention": "iha.layers.interleaved",
    "KVCache": "iha.layers.cache",
    "interleaved_head_attention": "iha.ops.interleaved",
}
_MODULES = {
    "accounting": "iha.accounting",
    "convert": "iha.convert",
    "layers": "iha.layers",
    "models": "iha.models",
    "ops": "iha.ops",
    "reference": "iha.ops.reference",
}
_NEEDS_TRANSFORMERS = {"IHAConfig", "IHAForCausalLM", "convert", "models"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        value: object = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'iha' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, as far as what they need is installed."""
    from importlib.util import find_spec

    missing = set() if find_spec("transformers") else _NEEDS_TRANSFORMERS
    special = [name for name in globals() if name.startswith("__")]
    return sorted({*special, *_HOMES, *_MODULES} - missing)
