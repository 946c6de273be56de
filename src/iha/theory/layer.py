"""An attention layer given by its weights: what the constructions of appendix B build and what is counted.

The widths are those of the constructions, not of Definition 3: the input is E wide, queries and keys D wide, values
Dv wide, and D, Dv and E/H all differ (E24).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention

Operator = Callable[..., Tensor]


@dataclass(frozen=True)
class Mixing:
    """What IHA adds to MHA."""

    alpha_q: Tensor  # (H, H, P_q); in the paper P_q = P_k = P
    alpha_k: Tensor  # (H, H, P_k)
    alpha_v: Tensor  # (H, H, P_k)
    collapse: Tensor  # (H, P_q), or (H, H*P_q) as in Definition 3

    def tensors(self) -> tuple[Tensor, ...]:
        return self.alpha_q, self.alpha_k, self.alpha_v, self.collapse


@dataclass(frozen=True)
class Layer:
    """MHA when `mixing` is None (then it has no mixing parameters at all), IHA otherwise."""

    w_q: Tensor  # (H, E, D)
    w_k: Tensor  # (H, E, D)
    w_v: Tensor  # (H, E, Dv)
    mixing: Mixing | None = None

    @property
    def heads(self) -> int:
        return self.w_q.shape[0]

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.w_q, self.w_k, self.w_v) + (() if self.mixing is None else self.mixing.tensors())

    def count(self) -> int:
        """Parameters actually allocated, attention only."""
        return sum(t.numel() for t in self.parameters())

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (torch.einsum("bne,hed->bnhd", x, w) for w in (self.w_q, self.w_k, self.w_v))
        return q, k, v  # (B, N, H, D), (B, N, H, D), (B, N, H, Dv)

    def __call__(
        self, x: Tensor, *, score: str = "softmax", causal: str | None = None, scale: float | None = 1.0
    ) -> Tensor:
        """(B, N, E) -> (B, N, H*Dv), the heads concatenated, by the reference operator."""
        mixing = self.mixing or identity_mixing(self.heads, 1, x.dtype)
        out = reference.interleaved_head_attention(
            *self.project(x),
            *mixing.tensors(),
            causal=causal,
            scale=scale,
            score=score,  # type: ignore[arg-type]
        )
        return out.flatten(2)

    def fast(self, x: Tensor, *, causal: str | None = None, scale: float | None = 1.0) -> Tensor:
        """The same with softmax, by the fast operator. It needs values as wide as keys: they are padded with zeros."""
        q, k, v = self.project(x)
        mixing = self.mixing or identity_mixing(self.heads, 1, x.dtype)
        D, Dv = k.shape[-1], v.shape[-1]
        if Dv > D:
            raise ValueError(f"the fast path takes values at most as wide as keys: {Dv} against {D}")
        v = torch.nn.functional.pad(v, (0, D - Dv))
        out = interleaved_head_attention(q, k, v, *mixing.tensors(), causal=causal, scale=scale)  # type: ignore[arg-type]
        return out[..., :Dv].flatten(2)


def identity_mixing(heads: int, pseudo_heads: int, dtype: torch.dtype = torch.float64, select: int = 0) -> Mixing:
    """Every pseudo-head is its own head (the inclusion proof); R, in the (H, H*P) form, reads one pseudo-head."""
    alpha = torch.eye(heads, dtype=dtype)[:, :, None].repeat(1, 1, pseudo_heads)
    return Mixing(alpha, alpha.clone(), alpha.clone(), select_pseudo_head(heads, pseudo_heads, select, dtype))


def select_pseudo_head(heads: int, pseudo_heads: int, select: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """R of Definition 3, (H, H*P): R[h, h*P + select] = 1."""
    collapse = torch.zeros(heads, heads, pseudo_heads, dtype=dtype)
    collapse[torch.arange(heads), torch.arange(heads), select] = 1
    return collapse.flatten(1)


def router_mixing(heads: int, dtype: torch.dtype = torch.float64) -> Mixing:
    """The one-hot routers of Theorems 3 and 4, P = H: in head h, one query (head h's) meets all H keys and values."""
    H = heads
    eye = torch.eye(H, dtype=dtype)
    alpha_q = torch.zeros(H, H, H, dtype=dtype)
    alpha_q[:, :, 0] = eye  # 1[m = h] 1[j = 1]
    alpha_kv = eye[:, None, :].repeat(1, H, 1)  # 1[m = j]
    return Mixing(alpha_q, alpha_kv, alpha_kv.clone(), select_pseudo_head(H, H, 0, dtype))
