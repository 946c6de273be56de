"""The tile engine: the formulas behind the CPU kernels, and what it allocates."""

import pytest
import torch

import iha
from iha.bench.measure import allocated
from iha.ops.backends import kernels
from iha.ops.backends.tiles import Tiling, backward_tiles, forward_tiles
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility
from support import Shape, tensors


@pytest.mark.parametrize("rule", [Visibility("virtual", None, 2), Visibility("token", 6, 2), Visibility(None, 6, 2)])
def test_queries_and_keys_may_be_any_part_of_the_sequence(rule):
    """Segments call the engine with pieces: it must agree with masking the whole."""
    q, k, v = (torch.randn(2, 60, 2, 4, dtype=torch.float64) for _ in range(3))
    documents = (torch.arange(30) // 11).expand(2, 30)
    queries, keys = (9, 20), (5, 27)
    rows, cols = slice(18, 40), slice(10, 54)
    tiling = Tiling(Masking(rule, None, documents), queries, keys, batch=2)
    out, lse = forward_tiles(q[:, rows], k[:, cols], v[:, cols], tiling, 0.5)
    index = torch.arange(60)
    visible = rule(index[:, None], index) & (
        documents[0].repeat_interleave(2)[:, None] == documents[0].repeat_interleave(2)
    )
    part = [t.transpose(1, 2).detach().requires_grad_() for t in (q[:, rows], k[:, cols], v[:, cols])]
    bias = torch.zeros(22, 44, dtype=torch.float64).masked_fill_(~visible[rows, cols], -torch.inf)
    want, want_lse = kernels.attend_tile_by_formula(*part, bias, 0.5)
    torch.testing.assert_close(out, want.transpose(1, 2), atol=1e-12, rtol=0)
    torch.testing.assert_close(lse, want_lse.transpose(1, 2), atol=1e-12, rtol=0)
    grad = torch.randn_like(out)
    grads = backward_tiles(grad, q[:, rows], k[:, cols], v[:, cols], out, lse, tiling, 0.5)
    for got, expected in zip(grads, torch.autograd.grad(want, part, grad.transpose(1, 2)), strict=True):
        torch.testing.assert_close(got, expected.transpose(1, 2), atol=1e-12, rtol=0)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("window", [None, 64])
def test_nothing_quadratic_and_nothing_of_size_sequence_times_window_is_allocated(window, mask):
    B, N, H, P, D = 1, 8192, 1, 2, 2
    inputs = tensors(Shape(B=B, N=N, H=H, G=H, P=P, D=D), torch.float32)
    documents = (torch.arange(N) // 1000)[None] if mask else None
    causal = "token" if window is None else "virtual"  # "virtual" without a window needs no mask at all

    def run() -> None:
        out = iha.interleaved_head_attention(*inputs, causal=causal, window=window, document_ids=documents)
        torch.autograd.grad(out.sum(), inputs)

    virtual = N * P
    scores = virtual * (virtual if window is None else window * P)  # even as one byte each
    assert allocated(run).largest < scores / 8
