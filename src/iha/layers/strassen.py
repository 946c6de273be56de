"""Strassen attention as a layer."""

from typing import Any

from torch import Tensor

from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.layers.simplicial import PairAttention
from iha.ops.masking import Masking
from iha.ops.strassen import strassen_attention


class StrassenAttention(PairAttention):
    """Self-attention to pairs of tokens, scored by three dot products (Kozachinskiy et al. 2025).

    RoPE rotates the queries and both sets of keys, so that all three products depend on relative positions.

    Args:
        chunk: queries computed at once; None limits a block to 16 MiB. Changes memory use, not results.
        options: as for `iha.InterleavedHeadAttention`, without `backend`.
    """

    kernel_obstacle = "a query attends to pairs of tokens: products of N×N matrices"

    def __init__(self, embed_dim: int, num_heads: int, *, chunk: int | None = None, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk must be at least 1 query or None, got {chunk}")
        self.chunk = chunk

    def unit_costs(self) -> UnitCosts:
        """Per (query, key): q·k1, q·k2, last contraction; per (key, key): k1·k2; D + 1 products of N×N matrices."""
        D, H = self.head_dim, self.num_heads
        return UnitCosts(
            attention_per_pair=4 * D * H + 2 * (D + 1) * H, patterns_per_head=1,
            attention_per_triple=2 * (D + 1) * H, attention_per_key_pair=2 * D * H,
        )  # fmt: skip

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)  # (B, N, G, D) each
        return strassen_attention(q, k1, k2, v1, v2, **masking.keywords, chunk=self.chunk)
