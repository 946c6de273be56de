"""Rotary position embedding (RoPE), in Hugging Face's half-split convention: feature d rotates with feature d + D/2.

A table is a pair (cos, sin) with D/2 columns. A *full* table has D columns, one per feature of a head.
"""

import torch
from torch import Tensor

from iha.ops.precision import wide


def rotary_table(positions: Tensor, dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of position * theta^(-2d/D), each (..., D/2) for positions (...)."""
    # float64 angles: at position 1e6 a float32 angle is already off by 0.03 rad.
    frequency = theta ** -(torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim)  # (D/2,)
    angle = positions.to(torch.float64)[..., None] * frequency  # (..., D/2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotate x (B, N, H, D) by its positions (N,) or (B, N). Computed in at least float32, returned in x's dtype."""
    return rotate_by(x, *rotary_table(positions, x.shape[-1], theta, wide(x.dtype)))


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (..., N, H, D) by a table of (..., N, D/2), the same for every head, in the table's precision."""
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)  # (..., N, 1, D/2)
    first, second = x.to(cos.dtype).chunk(2, dim=-1)  # (..., N, H, D/2) each
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def full_table(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """A table (..., D/2) as a full table, (..., D) each, for `rotate_by_full`. The first half of sin is negated."""
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotate_by_full(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`rotate_by` with a full table that broadcasts to x (..., D).

    It makes a third as many calls. Decoding is bound by the overhead of calls.
    """
    y = x.to(cos.dtype)
    return torch.addcmul(y * cos, y.roll(x.shape[-1] // 2, dims=-1), sin).to(x.dtype)
