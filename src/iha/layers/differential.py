"""Differential attention as a layer."""

from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.layers.multihead import MultiHeadAttention
from iha.ops.backends.formula import attend_with_weights
from iha.ops.differential import differential_attention, lambda_from, lambda_init_at, normalised_difference
from iha.ops.inputs import repeat_heads, zero_padding
from iha.ops.masking import Masking


class DifferentialAttention(MultiHeadAttention):
    """Self-attention by the difference of two softmax maps (Ye et al. 2024), in the form of Microsoft's flash version.

    `num_heads` counts softmax maps of width D, as in the other layers. Two adjacent maps form a differential head with
    values of width 2D. So a layer has the projections, the cache size and nearly the parameter count of multi-head
    attention with the same arguments. Microsoft's `num_heads` counts the pairs, so it is half of ours.

    Args:
        depth: the layer's index in its model, from 0; lambda_init = 0.8 - 0.6·exp(-0.3·depth).
        options: as for `iha.InterleavedHeadAttention`.
    """

    knows_depth = True
    takes_dropout = False

    def __init__(self, embed_dim: int, num_heads: int, *, depth: int = 0, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if self.dropout:
            raise ValueError(f"differential attention has no dropout, got dropout={self.dropout}")
        if self.num_heads % 2 or self.num_kv_heads % 2:
            raise ValueError(
                f"heads are compared in pairs: need even numbers of them, got num_heads={self.num_heads}, "
                f"num_kv_heads={self.num_kv_heads}"
            )
        self.depth, self.lambda_init = depth, lambda_init_at(depth)
        like = self.q_proj.weight
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(like.new_empty(self.head_dim)) for _ in range(4)
        )
        self.norm_weight = nn.Parameter(like.new_empty(2 * self.head_dim))
        self.reset_mixing()

    @torch.no_grad()
    def reset_mixing(self) -> None:
        """Reinitialise lambda and the norm; the projections stay."""
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            nn.init.normal_(vector, std=0.1)
        nn.init.ones_(self.norm_weight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        v = v.flatten(2).unflatten(2, (self.num_kv_heads // 2, -1))  # (B, N, G/2, 2D)
        return differential_attention(
            q,
            k,
            v,
            self.lambda_(),
            self.norm_weight,
            lambda_init=self.lambda_init,
            **masking.keywords,
            backend=call.backend,
        )  # (B, Nq, H/2, 2D)

    def own_value(self, v: Tensor) -> Tensor:
        return v.flatten(2).unflatten(2, (self.num_kv_heads // 2, -1))  # (B, Nq, G/2, 2D)

    decode = SelfAttention.decode  # not that of multi-head attention: there are two maps

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call
    ) -> tuple[Tensor, Tensor]:
        """The weights are the softmax maps whose differences are taken, (B, H, Nq, N)."""
        q, k, v = zero_padding(masking.key_padding_mask, q, k, v)
        members = (
            attend_with_weights(q[:, :, member::2], k[:, :, member::2], v[:, :, member::2], masking)[1]
            for member in (0, 1)
        )
        weights = torch.stack(tuple(members), dim=2).flatten(1, 2)  # (B, H, Nq, N), the two maps of a pair adjacent
        v = v.flatten(2).unflatten(2, (self.num_kv_heads // 2, -1))  # (B, N, G/2, 2D)
        v = repeat_heads(v, self.num_heads // 2)
        first, second = (torch.einsum("bhij,bjhd->bihd", weights[:, member::2], v) for member in (0, 1))
        out = normalised_difference(first, second, self.lambda_(), self.norm_weight, self.lambda_init)
        return out, weights

    def lambda_(self) -> Tensor:
        return lambda_from(self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2, self.lambda_init)

    def num_mixing_parameters(self) -> int:
        """By formula: four lambda vectors of D and a norm weight of 2D."""
        return 6 * self.head_dim

    @property
    def kernel_width(self) -> int:
        return 2 * self.head_dim

    def unit_costs(self) -> UnitCosts:
        """Values are 2D wide. Kernels need keys of the same width, so keys are padded with D zeros."""
        DH = self.head_dim * self.num_heads
        return UnitCosts(attention_per_pair=6 * DH, patterns_per_head=2, kernel_per_pair=8 * DH)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, depth={self.depth}"
