"""Paired heads as a layer."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.cache import Cached
from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.layers.multihead import MultiHeadAttention
from iha.ops.backends.formula import attend_with_weights
from iha.ops.inputs import zero_padding
from iha.ops.masking import Masking
from iha.ops.paired_heads import check_pairs, paired_head_attention, pairs, unpaired


class PairedHeadsAttention(MultiHeadAttention):
    """Self-attention of H/2 heads to twice the tokens, one per head of a pair (modded-nanogpt, pull request 191).

    What interleaved heads compute with init="paired_heads", with no weights but the projections. RoPE has virtual
    positions, 2n + p. The arguments are those of `iha.layers.MultiHeadAttention`.
    """

    num_pseudo_heads = 2
    rotary_stride = 2

    def __init__(self, embed_dim: int, num_heads: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        check_pairs(self.num_heads, self.num_kv_heads)
        self.num_mixed_heads, self.num_mixed_kv_heads = self.num_heads // 2, self.num_kv_heads // 2

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        return paired_head_attention(
            q, k, v, **masking.keywords, pseudo_rotary=call.pseudo_rotary, backend=call.backend,
            dropout_p=self.dropout_p,
        )  # fmt: skip

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call
    ) -> tuple[Tensor, Tensor]:
        """The weights are between the rows of pairs, (B, H/2, 2*Nq, 2*N)."""
        q, k, v = zero_padding(masking.key_padding_mask, q, k, v)
        q, k, v = pairs(q, call.pseudo_rotary), pairs(k, call.pseudo_rotary), pairs(v)
        out, weights = attend_with_weights(q, k, v, masking, dropout_p=self.dropout_p)
        return unpaired(out), weights

    def decode(self, q: Tensor, cached: Cached, call: Call) -> Tensor:
        """The view of the cache is as free as that of the new token, so decoding is attention."""
        return SelfAttention.decode(self, q, cached, call)

    def unit_costs(self) -> UnitCosts:
        """H/2 heads, each with 4 times as many pairs: twice multi-head attention."""
        return replace(super().unit_costs(), patterns_per_head=2)
