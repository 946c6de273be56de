"""Our CPU kernel against the float64 reference: outputs, gradients of everything, threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

import iha
from iha.ops import native
from iha.ops.backends import band_native
from iha.ops.backends.band_native import backward_ranges, forward_ranges, kernel_used, runs_natively
from iha.ops.backends.kernels import attend_tile_backward_by_formula, attend_tile_by_formula
from support import Shape, assert_all_close, outputs_and_gradients, tensors

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
operator, reference = iha.interleaved_head_attention, iha.reference.interleaved_head_attention


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shape, dict[str, Any], int, int]:
    """Windows from 1, lengths around the kernel's blocks of 48 queries and 64 keys, any grouping and masks."""
    causal = draw(st.sampled_from(["virtual", "token", None]))
    P = draw(st.integers(1, 4))
    P_k = None if causal == "virtual" else draw(st.sampled_from([None, 2, 3]))
    N = draw(st.one_of(st.integers(2, 40), st.sampled_from([47, 48, 49, 63, 64, 65, 97, 130])))
    G = draw(st.sampled_from([1, 2]))
    shape = Shape(
        B=draw(st.integers(1, 2)), N=N, H=G * draw(st.sampled_from([1, 2])), G=G, P=P, P_k=P_k,
        D=draw(st.sampled_from([16, 32, 64])), Nq=draw(st.one_of(st.none(), st.integers(1, N))),
    )  # fmt: skip
    options: dict[str, Any] = {"causal": causal, "window": draw(st.integers(1, N))}
    options["scale"] = draw(st.sampled_from([None, 0.2, -0.3, 0.0]))
    if draw(st.booleans()):
        ids = torch.tensor([draw(st.lists(st.integers(0, 3), min_size=N, max_size=N)) for _ in range(shape.B)])
        options["document_ids"] = ids.sort(dim=1).values if draw(st.booleans()) else ids
    if draw(st.booleans()):
        real = torch.ones(shape.B, N, dtype=torch.bool)
        start = draw(st.integers(0, N - 1))
        real[0, start : start + draw(st.integers(1, N))] = False  # on a side, or a hole
        options["key_padding_mask"] = real
    return shape, options, draw(st.sampled_from([1, 2])), draw(st.integers(0, 1000))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_operator_is_the_reference(case: tuple[Shape, dict[str, Any], int, int]) -> None:
    shape, options, count, seed = case
    torch.manual_seed(seed)
    inputs = tensors(shape, torch.float32)
    with threads(count):
        got = outputs_and_gradients(operator, inputs, **options)
    want = outputs_and_gradients(reference, [t.double() for t in inputs], **options)
    assert_all_close(got, want, 3e-5)


@pytest.mark.parametrize("D", [16, 48, 128])
def test_any_ranges_even_empty_ones(D: int) -> None:
    """The kernel alone: ranges that go back and forth, rows that see nothing, tensors that are views."""
    B, Q, K, H, G = 2, 101, 150, 4, 2
    q, k, v, grad = (torch.randn(B, n, h + 1, D)[:, :, :h] for n, h in ((Q, H), (K, G), (K, G), (Q, H)))
    first = torch.randint(0, K, (B, Q), dtype=torch.int32)
    last = (first + torch.randint(1, K, (B, Q), dtype=torch.int32)).clamp(max=K)
    blind = torch.rand(B, Q) < 0.1
    last[blind] = first[blind]
    out, lse = torch.empty(B, Q, H, D), torch.empty(B, Q, H)
    forward_ranges(q, k, v, (first, last), 0.3, (out, lse))
    grads = backward_ranges(grad, q, k, v, out, lse, (first, last), 0.3)

    j = torch.arange(K)
    visible = (first[:, :, None] <= j) & (j < last[:, :, None])
    bias = torch.zeros(visible.shape, dtype=torch.float64).masked_fill_(~visible, -torch.inf)[:, None]
    heads = [t.double().transpose(1, 2) for t in (grad, q, k, v)]
    heads[2:] = [t.repeat_interleave(H // G, dim=1) for t in heads[2:]]
    want, want_lse = attend_tile_by_formula(*heads[1:], bias, 0.3)
    want = want.masked_fill(blind[:, None, :, None], 0)
    torch.testing.assert_close(out.double(), want.transpose(1, 2), atol=2e-5, rtol=1e-4)
    seen = ~blind[:, None].expand(B, H, Q)
    torch.testing.assert_close(lse.transpose(1, 2)[seen].double(), want_lse[seen], atol=2e-5, rtol=1e-5)
    by_formula = list(attend_tile_backward_by_formula(*heads, want, want_lse.masked_fill(~seen, 0), bias, 0.3))
    by_formula[1:] = [t.unflatten(1, (G, -1)).sum(dim=2) for t in by_formula[1:]]
    for got, expected in zip(grads, by_formula, strict=True):
        torch.testing.assert_close(got.double(), expected.transpose(1, 2), atol=1e-4, rtol=1e-4)


def test_the_same_bits_however_many_threads() -> None:
    inputs = tensors(Shape(B=1, N=300, H=4, G=4, P=2, D=32), torch.float32)
    results = []
    for count in (1, 2, 2, 3):
        with threads(count):
            results.append(outputs_and_gradients(operator, inputs, window=40))
    for other in results[1:]:
        for name in ("out", "q", "k", "v"):
            torch.testing.assert_close(other[name], results[0][name], atol=1e-5, rtol=1e-5)
    for name, value in results[1].items():
        assert torch.equal(value, results[2][name]), name


def test_nan_stays_with_the_rows_that_see_it() -> None:
    q, k, v = (torch.randn(1, 80, 1, 16) for _ in range(3))
    k[0, 50] = torch.nan
    out = iha.ops.backends.attention.attend(
        q, k, v, iha.ops.masking.Masking(iha.ops.visibility.Visibility("virtual", 10)), backend="banded"
    )
    assert torch.equal(out[0, :, 0, 0].isnan(), (torch.arange(80) >= 50) & (torch.arange(80) < 60))


def test_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1, 4, 2, 16)
    assert runs_natively(x)
    assert kernel_used(16) == "native"
    for other in (x.double(), x.bfloat16(), x[..., :8], torch.zeros(1, 4, 2, 512)):
        assert not runs_natively(other)
    with sdpa_kernel(SDPBackend.MATH):  # plain matrix products, as for counting them
        assert not runs_natively(x)
    native.kernels.cache_clear()
    monkeypatch.setattr(native, "ENABLED", False)
    assert not runs_natively(x)
    assert kernel_used(16) == "torch"
    inputs = tensors(Shape(D=16), torch.float32)
    monkeypatch.setattr(band_native, "forward_ranges", None)
    operator(*inputs, window=5)
    native.kernels.cache_clear()
