"""The kernels of a decoding step: torch's products, up to rounding."""

import pytest
import torch
import torch.nn.functional as F

from iha.ops import native, one_token
from iha.ops.decoding import decode_interleaved

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 63), (33, 64), (300, 520), (256, 1024)])
def test_a_row_times_a_matrix(rows: int, columns: int, threads: int) -> None:
    x, weight, bias = torch.randn(1, 1, columns), torch.randn(rows, columns), torch.randn(rows)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for b in (None, bias):
            out = one_token.matrix_vector(x, weight, b)
            exact = F.linear(x.double(), weight.double(), None if b is None else b.double())
            assert out is not None
            assert out.shape == (1, 1, rows)
            torch.testing.assert_close(out.double(), exact, atol=1e-6 * columns**0.5, rtol=1e-5)
    finally:
        torch.set_num_threads(before)


def test_what_it_does_not_take() -> None:
    x, weight = torch.randn(1, 1, 8), torch.randn(4, 8)
    assert one_token.matrix_vector(torch.randn(1, 2, 8), weight, None) is None
    assert one_token.matrix_vector(x, torch.randn(8, 4).t(), None) is None
    assert one_token.matrix_vector(x.double(), weight.double(), None) is None
    with torch.enable_grad():
        assert one_token.matrix_vector(x, weight, None) is None


def test_the_norm_of_a_row() -> None:
    x, weight = torch.randn(1, 1, 77), torch.randn(77)
    want = F.rms_norm(x.double(), (77,), weight.double(), 1e-6)
    torch.testing.assert_close(one_token.rms_norm(x, weight, 1e-6).double(), want, atol=1e-6, rtol=1e-5)
    assert one_token.rms_norm(torch.randn(1, 2, 77), weight, 1e-6) is None


@pytest.mark.parametrize("layout", ["token after token", "head after head"])
@pytest.mark.parametrize(
    ("H", "G", "P_q", "P_k", "mixed", "D", "T"),
    [
        (2, 2, 2, 2, 2, 16, 1),
        (8, 8, 2, 2, 8, 32, 37),
        (4, 2, 3, 3, 4, 16, 9),
        (4, 2, 2, 1, 8, 48, 20),
        (4, 4, 1, 3, 2, 16, 17),
        (8, 8, 2, 2, 8, 64, 300),  # enough for several threads
    ],
)
def test_interleaved_heads(H: int, G: int, P_q: int, P_k: int, mixed: int, D: int, T: int, layout: str) -> None:
    B, G_mixed = 2, mixed * G // H
    shapes = [
        (B, 1, H, D),
        (B, T, G, D),
        (B, T, G, D),
        (H, mixed, P_q),
        (G, G_mixed, P_k),
        (G, G_mixed, P_k),
        (mixed, P_q),
    ]
    q, k, v, *mixing = (torch.randn(s) for s in shapes)
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    if layout == "head after head":
        k, v = k.contiguous(), v.contiguous()
    rotary = (torch.randn(P_q, P_q, 1, D), torch.randn(P_q, P_q, 1, D)) if P_q == P_k else None
    hidden = torch.rand(B, mixed * P_q * P_k, T) < 0.3
    hidden[..., -1] = False
    bias = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
    for mask in (None, bias, bias[:1].contiguous()):
        out = one_token.decode_interleaved(q, k, v, tuple(mixing), mask, rotary, D**-0.5)
        doubles = [t.double() for t in (q, k, v, *mixing)]
        exact = decode_interleaved(
            *doubles, bias=None if mask is None else mask.double(),
            rotary=None if rotary is None else tuple(t.double() for t in rotary),
        )  # fmt: skip
        assert out is not None
        torch.testing.assert_close(out.double(), exact, atol=2e-5, rtol=1e-4)


def test_narrow_heads_and_other_numbers_go_to_torch() -> None:
    def call(D: int, dtype: torch.dtype) -> object:
        q, k = torch.randn(1, 1, 2, D, dtype=dtype), torch.randn(1, 2, 3, D, dtype=dtype)
        mixing = tuple(torch.randn(s, dtype=dtype) for s in ((2, 2, 2), (2, 2, 2), (2, 2, 2), (2, 2)))
        return one_token.decode_interleaved(q, k, k, mixing, None, None, 1.0)

    assert call(8, torch.float32) is None
    assert call(16, torch.float64) is None
    assert call(16, torch.float32) is not None
