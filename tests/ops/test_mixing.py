"""Mixing and collapse against einsum."""

import pytest
import torch

from iha.ops.mixing import (
    collapse_grad,
    collapse_pseudo_heads,
    collapse_pseudo_heads_backward,
    combine_heads,
    combine_heads_rows_grad,
    mix,
    pseudo_queries_as_heads,
)


def test_mix_interleaves_pseudo_heads():
    x, alpha = torch.randn(2, 5, 3, 4, dtype=torch.float64), torch.randn(3, 6, 2, dtype=torch.float64)
    want = torch.einsum("mhp,bnmd->bnphd", alpha, x).flatten(1, 2)
    torch.testing.assert_close(mix(x, alpha), want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("full", [False, True])
def test_collapse(full):
    H, P = 3, 2
    x = torch.randn(2, 5 * P, H, 4, dtype=torch.float64)
    collapse = torch.randn(H, H * P if full else P, dtype=torch.float64)
    apart = x.unflatten(1, (5, P))
    if full:
        want = torch.einsum("hmp,bnpmd->bnhd", collapse.view(H, H, P), apart)
    else:
        want = torch.einsum("hp,bnphd->bnhd", collapse, apart)
    torch.testing.assert_close(collapse_pseudo_heads(x, collapse, P), want, atol=1e-12, rtol=0)


def test_pseudo_queries_as_heads():
    """R of heads that are pseudo-queries is the R of pseudo-queries, per head and full."""
    alpha, x = torch.randn(3, 4, 2, dtype=torch.float64), torch.randn(2, 5, 3, 4, dtype=torch.float64)
    for collapse in (torch.randn(4, 2, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)):
        heads, full = pseudo_queries_as_heads(alpha, collapse)
        found = collapse_pseudo_heads(mix(x, heads), full, 1)
        torch.testing.assert_close(found, collapse_pseudo_heads(mix(x, alpha), collapse, 2), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("full", "mixed"), [(False, 3), (True, 3), (True, 1), (True, 4)])
def test_gradients_of_collapse_are_those_of_autograd(full, mixed):
    H, P = 3, 2
    x = torch.randn(2, 5 * P, mixed, 4, dtype=torch.float64, requires_grad=True)
    collapse = torch.randn(H, mixed * P if full else P, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, 5, H, 4, dtype=torch.float64)
    want = torch.autograd.grad(collapse_pseudo_heads(x, collapse, P), (x, collapse), grad)
    with torch.no_grad():
        got = collapse_pseudo_heads_backward(grad, collapse, mixed, P), collapse_grad(grad, x, collapse, P)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)


def test_gradient_of_the_rows():
    rows = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    x, grad = torch.randn(2, 5, 3, 4, dtype=torch.float64), torch.randn(2, 5, 6, 4, dtype=torch.float64)
    (want,) = torch.autograd.grad(combine_heads(rows, x), rows, grad)
    torch.testing.assert_close(combine_heads_rows_grad(grad, x), want, atol=1e-12, rtol=0)
