"""Knocking-heads attention as a layer."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.costs import UnitCosts
from iha.layers.multihead import MultiHeadAttention
from iha.ops.knocking_heads import knock_linear, knock_mlp

KINDS = ("linear", "mlp")


class KnockingHeadsAttention(MultiHeadAttention):
    """Multi-head self-attention preceded by a small projection that all heads share (Zhou et al. 2025).

    Args:
        kind: "mlp", a gated MLP on the values (the authors' choice), or "linear", one matrix each on queries, keys
            and values, which could be folded into the projections after training.
        options: as for `iha.InterleavedHeadAttention`.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, kind: str = "mlp", **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
        self.kind = kind
        D, like = self.head_dim, self.q_proj.weight
        matrices = (nn.Parameter(like.new_empty(D, D)) for _ in range(3))
        if kind == "mlp":
            self.knock_up, self.knock_gate, self.knock_down = matrices
        else:
            self.knock_q, self.knock_k, self.knock_v = matrices
        self.reset_mixing()

    @torch.no_grad()
    def reset_mixing(self) -> None:
        """Reinitialise the shared projections so that they compute the identity; the projections of each head stay."""
        for name, matrix in self.named_parameters(recurse=False):
            if name == "knock_gate":
                nn.init.zeros_(matrix)  # sigmoid(0) is 1/2, and the formula doubles it
            else:
                nn.init.eye_(matrix)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Includes the shared projection, so the cache holds its outputs."""
        q, k, v = super().project(x)
        if self.kind == "mlp":
            return q, k, knock_mlp(v, self.knock_up, self.knock_gate, self.knock_down)
        return knock_linear(q, self.knock_q), knock_linear(k, self.knock_k), knock_linear(v, self.knock_v)

    def num_mixing_parameters(self) -> int:
        """By formula: three D×D matrices, for both kinds."""
        return 3 * self.head_dim**2

    def unit_costs(self) -> UnitCosts:
        """The MLP applies three matrices to G value heads; "linear" applies one to H queries, G keys and G values."""
        H, G = self.num_heads, self.num_kv_heads
        matrices = 3 * G if self.kind == "mlp" else H + 2 * G
        return replace(super().unit_costs(), mixing_per_token=2 * self.head_dim**2 * matrices)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, kind={self.kind!r}"
