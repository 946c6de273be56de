"""Rotary position embedding (RoPE), in Hugging Face's half-split convention: feature d rotates with feature d + D/2.

A table is a pair (cos, sin) with D/2 columns. A *full* table has D columns, one per feature of a head. `Rotation` holds
the tables for the new tokens of one forward, computed once by a layer for itself or by a model for all layers.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from iha.ops.precision import wide

Table = tuple[Tensor, Tensor]  # cos and sin


def rotary_table(positions: Tensor, dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of position * theta^(-2d/D), each (..., D/2) for positions (...)."""
    # float64 angles: at position 1e6 a float32 angle is already off by 0.03 rad.
    frequency = theta ** -(torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim)  # (D/2,)
    angle = positions.to(torch.float64)[..., None] * frequency  # (..., D/2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def grid_table(rows: int, columns: int, dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """2-D RoPE: cos and sin, (rows*columns, D/2) each, for the places of a grid, row by row.

    The first half of the pairs of features rotates by the row, the second by the column. So a dot product depends on
    the difference of rows and on the difference of columns.
    """
    if dim % 4:
        raise ValueError(f"2-D RoPE halves the pairs of features: the head width must be divisible by 4, got {dim}")
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    tables = (rotary_table(places.flatten(), dim // 2, theta, dtype) for places in (row, column))  # (places, D/4) each
    cos, sin = zip(*tables, strict=True)
    return torch.cat(cos, dim=-1), torch.cat(sin, dim=-1)


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


def rotate_pseudo_heads_(pseudo: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pseudo (B, N, P, H, D) in place, pseudo-head p by row p of a table (P, D/2).

    Pseudo-head 0 is usually at the token's own position, already: a row that rotates by nothing is skipped.
    """
    first = int(bool((cos[0] == 1).all()) and not bool(sin[0].any()))
    if first == len(cos):
        return pseudo
    part, table = pseudo[:, :, first:], full_table(cos[first:, None], sin[first:, None])  # (P, 1, D) each
    if part.dtype != cos.dtype:
        part.copy_(rotate_by_full(part, *table))
    else:
        turned = part.roll(part.shape[-1] // 2, dims=-1)
        part.mul_(table[0]).addcmul_(turned, table[1])
    return pseudo


class Rotation(NamedTuple):
    """RoPE of layers whose positions advance by `stride` per token: P if pseudo-heads have their own positions, else 1.

    RoPE commutes with mixing, so heads are rotated to position n·stride before they are mixed. Pseudo-head p is then
    rotated further by its offset p.
    """

    tokens: Table  # for the new tokens: (1 or B, Nq, D/2), or full, (1 or B, Nq, 1, D)
    pseudo_heads: Table | None = None  # (P, D/2): for the offsets 0 … P-1; None with stride 1
    query_to_key: Table | None = None  # full, (P, P, 1, D): for p - p' of query p and key p'; used in decoding

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, Nq, heads, D), rotated to the positions of its tokens."""
        full = self.tokens[0].shape[-1] == x.shape[-1]
        return rotate_by_full(x, *self.tokens) if full else rotate_by(x, *self.tokens)

    def to(self, device: torch.device | str) -> "Rotation":
        return Rotation(*(None if table is None else tuple(t.to(device) for t in table) for table in self))  # type: ignore[arg-type]


def rotation_by_theta(
    first: int, num_tokens: int, stride: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device
) -> Rotation:
    """Rotation for `num_tokens` tokens from index `first`, with the formula and precision of `rotary_table`."""
    positions = stride * torch.arange(first, first + num_tokens, device=device)  # (Nq,)
    if stride == 1:
        return Rotation(rotary_table(positions, head_dim, theta, dtype))
    offsets = pseudo_head_offsets(stride, device)  # (P + P*P,)
    # One table for both: a decoding step is limited by the number of calls more than by arithmetic.
    cos, sin = rotary_table(torch.cat((positions, offsets)), head_dim, theta, dtype)
    tokens, rest = zip(*((t[:num_tokens], t[num_tokens:]) for t in (cos, sin)), strict=True)
    return Rotation(tokens, *offset_tables(stride, lambda _: rest, offsets))


def pseudo_head_offsets(num_pseudo_heads: int, device: torch.device) -> Tensor:
    """The P offsets of pseudo-heads, then the P² differences p - p' of each query p and key p'."""
    p = torch.arange(num_pseudo_heads, device=device)
    return torch.cat((p, (p[:, None] - p).flatten()))


def offset_tables(num_pseudo_heads: int, table: Callable[[Tensor], Table], offsets: Tensor) -> tuple[Table, Table]:
    """`Rotation.pseudo_heads` and `Rotation.query_to_key`, from a table of `pseudo_head_offsets`."""
    P = num_pseudo_heads
    cos, sin = table(offsets)  # (P + P*P, D/2)
    between = full_table(cos[P:].view(P, P, 1, -1), sin[P:].view(P, P, 1, -1))
    return (cos[:P], sin[:P]), between
