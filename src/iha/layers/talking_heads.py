"""Talking-heads attention as a layer."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.ops.inputs import repeat_heads, zero_padding
from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.talking_heads import talking_heads_attention

INITS = ("identity", "random")


class TalkingHeadsAttention(SelfAttention):
    """Self-attention whose heads are mixed before and after the softmax (Shazeer et al. 2020).

    Args:
        init: initialisation of the two H×H mixes: "identity", which starts as multi-head attention, or "random",
            normal with standard deviation 1/√H.
        chunk: queries computed at once; None limits a block's logits to 16 MiB. Changes memory use, not results.
        options: as for `iha.InterleavedHeadAttention`. There is no `backend`: no fused kernel computes this.
    """

    kernel_obstacle = "every row's logits of all heads meet before the softmax"

    def __init__(
        self, embed_dim: int, num_heads: int, *, init: str = "identity", chunk: int | None = None, **options: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if init not in INITS:
            raise ValueError(f"init must be one of {INITS}, got {init!r}")
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk must be at least 1 query or None, got {chunk}")
        self.init, self.chunk = init, chunk
        like = self.q_proj.weight
        self.mix_logits, self.mix_weights = (nn.Parameter(like.new_empty(num_heads, num_heads)) for _ in range(2))
        self.reset_mixing()

    @torch.no_grad()
    def reset_mixing(self) -> None:
        """Reinitialise the mixes by `init`; the projections stay."""
        for mix in (self.mix_logits, self.mix_weights):
            if self.init == "identity":
                nn.init.eye_(mix)
            else:
                nn.init.normal_(mix, std=self.num_heads**-0.5)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        return talking_heads_attention(q, k, v, self.mix_logits, self.mix_weights, **masking.keywords, chunk=self.chunk)

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call
    ) -> tuple[Tensor, Tensor]:
        """The weights are the mixed ones, applied to the values: (B, H, Nq, N). Their rows need not sum to 1."""
        q, k, v = zero_padding(masking.key_padding_mask, q, k, v)
        k, v = repeat_heads(k, self.num_heads), repeat_heads(v, self.num_heads)
        N, Nq = k.shape[1], q.shape[1]
        logits = self.head_dim**-0.5 * torch.einsum("bihd,bjhd->bhij", q, k)
        logits = torch.einsum("bhij,hg->bgij", logits, self.mix_logits.to(q.dtype))
        hidden = ~masking.tile((N - Nq, N), (0, N), q.device)[:, None]  # (1 or B, 1, Nq, N)
        weights = logits.masked_fill(hidden, -torch.inf).softmax(dim=-1, dtype=wide(q.dtype)).to(q.dtype)
        weights = torch.einsum("bgij,gf->bfij", weights, self.mix_weights.to(q.dtype))
        return torch.einsum("bfij,bjfd->bifd", weights, v), weights

    def num_mixing_parameters(self) -> int:
        """By formula: 2H²."""
        return 2 * self.num_heads**2

    def unit_costs(self) -> UnitCosts:
        """Two H×H mixes per (query, key) pair."""
        H = self.num_heads
        return replace(super().unit_costs(), patterns_per_head=H, mixing_per_pair=4 * H * H)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, init={self.init!r}"
