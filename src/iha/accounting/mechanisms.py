"""Builds the layer whose costs are asked for, from the shape that all layers share and one entry of a schedule."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from iha.layers.base import SelfAttention
from iha.layers.schedule import LayerSpec
from iha.ops.output import Gate
from iha.ops.visibility import Causality, Visibility


@dataclass(frozen=True)
class AttentionShape:
    """What all layers of a model have in common."""

    embed_dim: int  # E
    num_heads: int  # H
    num_kv_heads: int | None = None  # G; equal to num_heads when None
    head_dim: int | None = None  # D; embed_dim // num_heads when None
    causal: Causality = "virtual"
    collapse: str = "per_head"  # used by IHA only
    bias: bool = False
    gate: Gate | None = None

    @property
    def G(self) -> int:  # noqa: N802
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def D(self) -> int:  # noqa: N802
        return self.embed_dim // self.num_heads if self.head_dim is None else self.head_dim

    def visibility(self, spec: LayerSpec) -> Visibility:
        return spec.visibility(self.causal)


@lru_cache(maxsize=4096)
def layer_of(shape: AttentionShape, spec: LayerSpec) -> SelfAttention:
    """The layer itself, on the meta device: it uses no memory and makes the same checks as a real one."""
    own: dict[str, Any] = {"collapse": shape.collapse} if spec.is_interleaved else {}
    if spec.num_mixed_heads is not None:
        own["init"] = "random"  # one that any number of mixed heads has
    return spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, bias=shape.bias,
        causal=shape.causal, gate=shape.gate, device="meta", **own,
    )  # fmt: skip
