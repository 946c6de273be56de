"""One call of the CPU kernel: the formulas that other devices run instead, and narrow heads."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import iha
from iha.ops.backends import kernels
from support import Shape, tensors


def test_the_formula_is_the_cpu_kernel():
    """What other devices run, checked here where both exist."""
    q, k, v, grad = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (5, 9, 9, 5))
    bias = torch.zeros(5, 9, dtype=torch.float64).masked_fill_(torch.rand(5, 9) < 0.3, -torch.inf)
    bias[:, 0] = 0
    out, lse = kernels.attend_tile(q, k, v, bias, 0.3)
    out_by_formula, lse_by_formula = kernels.attend_tile_by_formula(q, k, v, bias, 0.3)
    torch.testing.assert_close(out_by_formula, out, atol=1e-12, rtol=0)
    torch.testing.assert_close(lse_by_formula, lse, atol=1e-12, rtol=0)
    grads = kernels.attend_tile_backward(grad, q, k, v, out, lse, bias, 0.3)
    by_formula = kernels.attend_tile_backward_by_formula(grad, q, k, v, out, lse, bias, 0.3)
    for a, b in zip(by_formula, grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_the_operator_by_formula_alone(monkeypatch):
    """The whole way through as on a device without the CPU kernels."""
    inputs = [t.detach() for t in tensors(Shape(N=111))]
    want = iha.reference.interleaved_head_attention(*inputs, window=9)
    monkeypatch.setattr("iha.ops.backends.tiles.attend_tile", kernels.attend_tile_by_formula)
    got = iha.interleaved_head_attention(*inputs, window=9)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_what_is_filled_up() -> None:
    assert kernels.widen_narrow_heads(torch.ones(2, 8)).tolist() == [[1.0] * 8 + [0.0] * 8] * 2
    for x in (torch.ones(2, 16), torch.ones(2, 8, dtype=torch.float64), torch.ones(2, 8, device="meta")):
        assert kernels.widen_narrow_heads(x) is x
    with sdpa_kernel(SDPBackend.MATH):  # plain matrix products, as for counting them
        assert kernels.widen_narrow_heads(torch.ones(2, 8)).shape == (2, 8)
