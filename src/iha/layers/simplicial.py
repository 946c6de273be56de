"""2-simplicial attention as a layer."""

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.ops.masking import Masking
from iha.ops.pairs import seen_by
from iha.ops.rotary import Rotation
from iha.ops.simplicial import Window, simplicial_attention, windows_of
from iha.ops.visibility import Visibility


class PairAttention(SelfAttention):
    """Base of attention to pairs of tokens: two sets of keys and values from `k_proj` and `v_proj`.

    Each KV head is 2D wide: the first set's features, then the second's. The cache has the same layout.
    """

    key_value_sets = 2

    def __init__(self, embed_dim: int, num_heads: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        like, width = self.k_proj, self.num_kv_heads * 2 * self.head_dim
        for name in ("k_proj", "v_proj"):
            projection = nn.Linear(
                embed_dim, width, bias=like.bias is not None, device=like.weight.device, dtype=like.weight.dtype
            )
            setattr(self, name, projection)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, N, E) to q (B, N, H, D) and k, v (B, N, G, 2D)."""
        q = self.q_proj(x).unflatten(-1, (self.num_heads, self.head_dim))
        k = self.k_proj(x).unflatten(-1, (self.num_kv_heads, 2, self.head_dim))
        v = self.v_proj(x).unflatten(-1, (self.num_kv_heads, 2, self.head_dim))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k.flatten(-2), v.flatten(-2)

    def own_value(self, v: Tensor) -> Tensor:
        """The value of the pair that a token forms with itself, (B, Nq, G, D)."""
        first, second = v.chunk(2, dim=-1)
        return first * second

    def rotate_keys(self, k: Tensor, rotation: Rotation) -> Tensor:
        return torch.cat([rotation(part) for part in k.chunk(2, dim=-1)], dim=-1)  # both sets


class SimplicialAttention(PairAttention):
    """Self-attention to pairs of tokens by trilinear logits (Clift et al. 2019, Roy et al. 2025).

    Args:
        window: (w1, w2), the windows of the first and the second keys in tokens, including the query's own. One number
            sets both. None sees all pairs, N² per query, which suits short sequences only.
        key_offset, value_offset: constants added to the second keys and values. Meta's kernels add 1/D and 1, so that
            the layer starts close to ordinary attention over the first keys. The paper's formula has no offsets.
        options: as for `iha.InterleavedHeadAttention`, without `backend` and RoPE. Rotating the factors of a trilinear
            form does not make it a function of relative positions.
    """

    kernel_obstacle = "a query attends to pairs of tokens: logits of three factors"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        window: Window = None,
        key_offset: float = 0.0,
        value_offset: float = 0.0,
        rope_theta: float | None = None,
        **options: Any,
    ) -> None:
        if rope_theta is not None:
            raise ValueError(f"rope_theta={rope_theta}: RoPE is not relative in trilinear logits; give positions to x")
        w1, w2 = windows_of(window)
        reach = None if w1 is None or w2 is None else max(w1, w2)
        super().__init__(embed_dim, num_heads, window=reach, **options)  # the cache keeps the longer window
        self.windows, self.key_offset, self.value_offset = (w1, w2), key_offset, value_offset

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)  # (B, N, G, D) each
        return simplicial_attention(
            q, k1, k2 + self.key_offset, v1, v2 + self.value_offset, **{**masking.keywords, "window": self.windows}
        )

    def own_value(self, v: Tensor) -> Tensor:
        first, second = v.chunk(2, dim=-1)
        return first * (second + self.value_offset)

    def unit_costs(self) -> UnitCosts:
        """The first keys and values are weighted by the second: a pair of keys costs what one key does in attention."""
        return UnitCosts(0, patterns_per_head=1, attention_per_triple=4 * self.head_dim * self.num_heads)

    def triples(self, num_tokens: int, convention: str) -> Fraction:
        if self.windows[0] == self.windows[1]:
            return super().triples(num_tokens, convention)
        if convention != "exact":
            raise ValueError(f"two windows {self.windows} are counted exactly only, not by convention={convention!r}")
        rules = [Visibility(self.causal, w).clipped(num_tokens) for w in self.windows]
        seen = ([seen_by(rule, i, num_tokens) for rule in rules] for i in range(num_tokens))
        return Fraction(sum(first * second for first, second in seen))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, windows={self.windows}"
