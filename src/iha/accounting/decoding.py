"""What one decoding step costs: FLOPs and memory traffic of the products that read the cache (`iha.ops.decoding`).

Interleaved head attention applies alpha_k to the query and alpha_v to the output, so the cache is read once, un-mixed.
In return every (query pseudo-head, key pseudo-head) pair of a head meets all G cached heads: P_q P_k G times the
multiply-adds of multi-head attention on the keys. On a GPU they are free as long as memory is the limit.
"""

from dataclasses import dataclass

from iha.accounting.mechanisms import AttentionShape, layer_of
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.schedule import LayerSpec
from iha.ops.pairs import kept


@dataclass(frozen=True)
class DecodingStep:
    """One new token of one sequence in one layer. What does not grow with the cache is left out."""

    num_tokens: int  # T, that the new token sees, itself included
    flops: int
    cache_bytes: int  # keys and values, each read once
    score_bytes: int  # scores and weights between the two products, each written once and read once

    @property
    def traffic(self) -> int:
        return self.cache_bytes + self.score_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte of memory traffic."""
        return self.flops / self.traffic


def decoding_step(
    shape: AttentionShape, spec: LayerSpec, num_cached: int, element_size: int = 2
) -> DecodingStep | None:
    """The step behind `num_cached` tokens; None for mechanisms without a decoding step of their own."""
    layer = layer_of(shape, spec)
    if layer.causal is None or not isinstance(layer, InterleavedHeadAttention | MultiHeadAttention):
        return None
    H, G, D, (P_q, P_k) = layer.num_mixed_heads, layer.num_kv_heads, layer.head_dim, layer.visibility.per_token
    T = kept(layer.visibility, num_cached)[0] + 1
    if isinstance(layer, InterleavedHeadAttention):
        per_head = layer.collapse_kind == "per_head"
        scores, weights = H * P_q * P_k * T, H * P_k * T * (1 if per_head else P_q)
        # A row meets all G heads of a token at once. A per-head R acts on the weights, between the two products.
        flops = 2 * G * D * (scores + weights) + (2 * scores if per_head else 0)
    else:
        scores = weights = H * P_q * P_k * T
        flops = 2 * D * (scores + weights)
    return DecodingStep(T, flops, 2 * T * G * D * element_size, 2 * (scores + weights) * element_size)
