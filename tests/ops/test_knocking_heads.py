"""Knocking heads: the shared projections by their formula."""

import pytest
import torch

from iha.ops.knocking_heads import knock_linear, knock_mlp


def test_every_head_passes_through_the_same_matrix() -> None:
    x, T = torch.randn(2, 5, 3, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    found = knock_linear(x, T)
    for h in range(3):
        torch.testing.assert_close(found[:, :, h], x[:, :, h] @ T, atol=1e-13, rtol=0)


def test_mlp_by_its_formula_and_identity_at_the_start() -> None:
    x = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    up, gate, down = (torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    found = knock_mlp(x, up, gate, down)
    torch.testing.assert_close(found, 2 * ((x @ up) / (1 + torch.exp(-(x @ gate)))) @ down, atol=1e-12, rtol=0)
    assert torch.autograd.gradcheck(lambda *m: knock_mlp(x[:1, :2], *m), (up, gate, down))
    eye = torch.eye(4, dtype=torch.float64)
    assert torch.equal(knock_mlp(x, eye, torch.zeros_like(eye), eye), x)


def test_bad_matrices_are_named() -> None:
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"projection.*\(3, 4\)"):
        knock_linear(x, torch.randn(3, 4))
    with pytest.raises(ValueError, match=r"gate.*\(5, 5\)"):
        knock_mlp(x, torch.eye(4), torch.eye(5), torch.eye(4))
