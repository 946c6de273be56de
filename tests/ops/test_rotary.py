"""RoPE against the reference and against complex numbers; tables of one forward lead to virtual positions."""

import pytest
import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.rotary import (
    Rotation,
    full_table,
    grid_table,
    rotary_table,
    rotate,
    rotate_by,
    rotate_by_full,
    rotate_pseudo_heads_,
    rotation_by_theta,
)

THETA = 100.0
CPU = torch.device("cpu")


def test_a_full_table_rotates_as_the_half_one() -> None:
    x, table = torch.randn(2, 5, 3, 8), rotary_table(torch.arange(5), 8, THETA, torch.float32)
    cos, sin = (t.unsqueeze(-2) for t in full_table(*table))
    torch.testing.assert_close(rotate_by_full(x, cos, sin), rotate_by(x, *table))


def test_rotate_is_the_reference():
    x, positions = torch.randn(2, 5, 3, 8, dtype=torch.float64), torch.tensor([0, 3, 4, 100, 7])
    torch.testing.assert_close(rotate(x, positions, THETA), reference.rotate(x, positions, THETA), atol=1e-12, rtol=0)


def test_scores_depend_on_relative_positions_only():
    q, k = torch.randn(1, 1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 1, 8, dtype=torch.float64)

    def score(n: int, m: int) -> torch.Tensor:
        return (rotate(q, torch.tensor([n]), THETA) * rotate(k, torch.tensor([m]), THETA)).sum()

    torch.testing.assert_close(score(9, 4), score(105, 100), atol=1e-12, rtol=0)
    assert (score(9, 4) - score(9, 5)).abs() > 1e-6


def turned(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """RoPE as complex multiplication, (B, N, H, D) and positions (N,): features d and d + D/2 are one number."""
    D = x.shape[-1]
    angle = positions.double()[:, None] * theta ** (-2 * torch.arange(D // 2).double() / D)
    z = torch.complex(x[..., : D // 2], x[..., D // 2 :]) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat((z.real, z.imag), dim=-1)


@pytest.mark.parametrize("stride", [1, 3])
def test_tokens_are_rotated_to_their_positions(stride: int) -> None:
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64)
    rotation = rotation_by_theta(7, 5, stride, 8, 1e4, torch.float64, CPU)
    torch.testing.assert_close(rotation(x), turned(x, stride * torch.arange(7, 12), 1e4), atol=1e-12, rtol=0)
    if stride == 1:
        assert rotation.pseudo_heads is rotation.query_to_key is None


def test_a_full_table_rotates_alike() -> None:
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64)
    half = rotary_table(torch.arange(5), 8, 1e4, torch.float64)
    full = tuple(t[:, None] for t in full_table(*half))  # (N, 1, D)
    torch.testing.assert_close(Rotation(full)(x), Rotation(half)(x), atol=1e-15, rtol=0)  # type: ignore[arg-type]


def test_pseudo_head_offsets_lead_to_virtual_positions() -> None:
    """Token n, then offset p: position n·P + p. The table between query p and key p' holds p - p'."""
    P, theta = 3, 100.0
    rotation = rotation_by_theta(4, 2, P, 8, theta, torch.float64, CPU)
    assert rotation.pseudo_heads is not None
    assert rotation.query_to_key is not None
    x = torch.randn(1, 2, 1, 8, dtype=torch.float64)
    for p in range(P):
        cos, sin = (t[p].expand(2, -1) for t in rotation.pseudo_heads)
        want = turned(x, torch.tensor([4 * P + p, 5 * P + p]), theta)
        torch.testing.assert_close(rotate_by(rotation(x), cos, sin), want, atol=1e-12, rtol=0)
        for other in range(P):
            found = rotate_by_full(x, *(t[p, other] for t in rotation.query_to_key))
            want = turned(x, torch.tensor([p - other] * 2), theta)
            torch.testing.assert_close(found, want, atol=1e-12, rtol=0)


def test_all_tables_move_to_a_device() -> None:
    rotation = rotation_by_theta(0, 2, 3, 8, 100.0, torch.float32, CPU).to("meta")
    assert [t.device.type for table in rotation for t in table] == ["meta"] * 6
    assert rotation_by_theta(0, 2, 1, 8, 100.0, torch.float32, CPU).to("meta").pseudo_heads is None


@pytest.mark.parametrize("first", [0, 1])  # with 0, pseudo-head 0 is at its token's position and stays as it is
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pseudo_heads_are_rotated_in_place_by_their_own_row(first: int, dtype: torch.dtype) -> None:
    P, D = 3, 8
    wide = torch.promote_types(dtype, torch.float32)
    cos, sin = rotary_table(torch.arange(first, first + P), D, THETA, wide)
    pseudo = torch.randn(2, 5, P, 4, D, dtype=torch.float64).to(dtype)
    want = rotate_by(pseudo, cos, sin)
    assert rotate_pseudo_heads_(pseudo, cos, sin) is pseudo
    torch.testing.assert_close(pseudo, want, atol=1e-12 if dtype == torch.float64 else 1e-2, rtol=1e-2)


def test_one_pseudo_head_at_its_token_is_left_alone() -> None:
    cos, sin = rotary_table(torch.zeros(1), 8, THETA, torch.float64)
    pseudo = torch.randn(2, 5, 1, 4, 8, dtype=torch.float64)
    assert torch.equal(rotate_pseudo_heads_(pseudo.clone(), cos, sin), pseudo)


def test_grid_scores_depend_on_differences_of_rows_and_of_columns() -> None:
    """And a grid of one row or one column is 1-D RoPE on half of the features."""
    rows, columns, D = 5, 7, 8
    cos, sin = grid_table(rows, columns, D, 10.0, torch.float64)
    q, k = torch.randn(2, D, dtype=torch.float64)
    q, k = (rotate_by(t.expand(rows * columns, 1, D), cos, sin).view(rows, columns, D) for t in (q, k))
    scores = torch.einsum("ijd,kld->ijkl", q, k)
    for shift in (1, 2):
        torch.testing.assert_close(scores[shift:, :, shift:], scores[:-shift, :, :-shift], atol=1e-12, rtol=0)
        torch.testing.assert_close(scores[:, shift:, :, shift:], scores[:, :-shift, :, :-shift], atol=1e-12, rtol=0)
    assert (scores[1:, :, :-1] - scores[:-1, :, 1:]).abs().max() > 1e-3
    line = grid_table(rows, 1, D, 10.0, torch.float64)
    torch.testing.assert_close(line[0][:, : D // 4], rotary_table(torch.arange(rows), D // 2, 10.0, torch.float64)[0])
    assert (line[0][:, D // 4 :] == 1).all()
    with pytest.raises(ValueError, match="divisible by 4, got 6"):
        grid_table(2, 2, 6, 10.0, torch.float32)
