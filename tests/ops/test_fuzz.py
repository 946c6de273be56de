"""Fuzzers: random configurations of every operator and backend against float64 definitions, forward and backward.

`make test` draws a few fixed examples; `make fuzz MINUTES=n` draws new ones without end.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import iha
from iha.ops.backends.attention import attend
from iha.ops.backends.formula import attend_with_weights
from iha.ops.masking import Masking
from support import Shape, assert_all_close, outputs_and_gradients, tensors

SCALES = st.none() | st.sampled_from([0.0, -0.0]) | st.floats(-2, 2)


@st.composite
def maskings(draw: st.DrawFn, B: int, N: int, P: int) -> Masking:
    """Any rule with windows from 1, any padding (whole sequences too), any documents (in runs or not)."""
    window = draw(st.none() | st.integers(1, N + 2))
    bits = st.lists(st.booleans(), min_size=B * N, max_size=B * N)
    padding = draw(st.none() | bits.map(lambda flags: torch.tensor(flags).view(B, N)))
    numbers = st.lists(st.integers(0, 3), min_size=B * N, max_size=B * N)
    documents = draw(st.none() | numbers.map(lambda ids: torch.tensor(ids).view(B, N)))
    if documents is not None and draw(st.booleans()):
        documents = documents.sort(dim=1).values
    return Masking.of(draw(st.sampled_from(["virtual", "token", None])), window, padding, documents, num_pseudo_heads=P)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shape, Masking, dict[str, Any], int]:
    G, repeats, P, B = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
    )
    N = draw(st.integers(1, 40))
    shape = Shape(
        B, N, G * repeats, G, P, 2 * draw(st.integers(1, 4)), Nq=draw(st.integers(1, N)), full=draw(st.booleans())
    )
    options = {
        "scale": draw(SCALES),
        "rope_theta": draw(st.none() | st.sampled_from([10.0, 1e4])),
        "rope_positions": draw(st.sampled_from(["virtual", "token"])),
    }
    return shape, draw(maskings(B, N, P)), options, draw(st.integers(0, 2**32 - 1))


@settings(max_examples=60)
@given(cases())
def test_interleaved_is_the_reference(case: tuple[Shape, Masking, dict[str, Any], int]) -> None:
    shape, masking, options, seed = case
    torch.manual_seed(seed)
    inputs, options = tensors(shape), options | masking.keywords
    want = outputs_and_gradients(iha.reference.interleaved_head_attention, inputs, **options)
    got = outputs_and_gradients(iha.interleaved_head_attention, inputs, **options)
    assert_all_close(got, want)


@settings(max_examples=60)
@given(cases(), st.sampled_from(["sdpa", "banded"]))
def test_a_named_backend_is_right_or_refuses(case: tuple[Shape, Masking, dict[str, Any], int], backend: str) -> None:
    shape, masking, options, seed = case
    torch.manual_seed(seed)
    inputs, options = tensors(shape), options | masking.keywords
    binds = masking.visibility.clipped(shape.N).window is not None
    if binds == (backend == "sdpa"):  # SDPA knows no window, a band needs one
        with pytest.raises(ValueError, match=f"backend='{backend}' cannot do this"):
            iha.interleaved_head_attention(*inputs, backend=backend, **options)
        return
    got = outputs_and_gradients(iha.interleaved_head_attention, inputs, backend=backend, **options)
    assert_all_close(got, outputs_and_gradients(iha.reference.interleaved_head_attention, inputs, **options))


@settings(max_examples=40)
@given(cases())
def test_attention_on_virtual_tokens_is_the_formula(case: tuple[Shape, Masking, dict[str, Any], int]) -> None:
    """What the mechanisms other than IHA go through, in tiles and by SDPA, with values that are as wide as the keys."""
    shape, masking, options, seed = case
    torch.manual_seed(seed)
    P, Nq = shape.P, shape.Nq or shape.N
    sizes = ((Nq, shape.H), (shape.N, shape.G), (shape.N, shape.G))
    q, k, v = (torch.randn(shape.B, n * P, h, shape.D, dtype=torch.float64) for n, h in sizes)
    if masking.key_padding_mask is not None:  # as callers do
        padding = ~masking.key_padding_mask.repeat_interleave(P, dim=1)[:, :, None, None]
        q, k, v = q.masked_fill(padding[:, -Nq * P :], 0), k.masked_fill(padding, 0), v.masked_fill(padding, 0)

    def by_formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend_with_weights(q, k, v, masking, scale=options["scale"])[0]

    def fast(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, masking, scale=options["scale"])

    assert_all_close(outputs_and_gradients(fast, (q, k, v)), outputs_and_gradients(by_formula, (q, k, v)))
