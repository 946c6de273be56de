"""The tile engine: the formulas behind the CPU kernels, and what it allocates."""

import pytest
import torch

import iha
from iha.bench.measure import allocated
from iha.ops.backends import kernels
from iha.ops.backends.tiled import tiled_attention
from iha.ops.backends.tiles import Tiling, backward_tiles, forward_tiles
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility
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


def test_training_a_local_layer_keeps_no_pseudo_heads():
    """The graph holds the un-mixed q, k, v and the attention's output: 3 + P tensors of N*H*D, not 3 + 4P."""
    H, P, D, N = 4, 4, 8, 512
    inputs = tensors(Shape(B=1, N=N, H=H, G=H, P=P, D=D), torch.float32)
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        iha.interleaved_head_attention(*inputs, window=16)
    assert sum(saved.values()) < (3 + P + 1) * N * H * D * 4


def test_tiled_attention_passes_torchs_own_checks_of_an_operator():
    q, k, v = (torch.randn(1, 12, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    arguments = (q, k, v, "token", None, 2, torch.tensor([[True] * 5 + [False]]), None, 0.5)
    torch.library.opcheck(torch.ops.iha.tiled_attention.default, arguments)
    assert tiled_attention(q, k, v, Masking(Visibility("token", None, 2)), 0.5).shape == q.shape


def test_banded_attention_passes_torchs_own_checks_of_an_operator():
    q, k, v = (torch.randn(1, 12, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    rows = [torch.randn(4, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    back = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    arguments = (q, k, v, *rows, back, "virtual", 3, 2, None, None, torch.rand(2, 2), torch.rand(2, 2), 0.5, True)
    torch.library.opcheck(torch.ops.iha.banded_attention.default, arguments)
