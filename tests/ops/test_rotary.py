"""RoPE against the reference, with half and full tables."""

import torch

from iha.ops import reference
from iha.ops.rotary import full_table, rotary_table, rotate, rotate_by, rotate_by_full

THETA = 100.0


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
