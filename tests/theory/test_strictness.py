"""Theorem 2, strictness; errata E1 and E12."""

import pytest
import torch

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.theory.layer import identity_mixing
from iha.theory.strictness import (
    additivity_gap,
    inputs,
    law_error,
    repeated,
    run,
    score_and_value,
    signed_mixing,
    with_mixing,
)
from iha.theory.superset import random_layer

OPERATORS = {"reference": reference.interleaved_head_attention, "fast": interleaved_head_attention}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("causal", [None, "token", "virtual"])
@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_mha_is_linear_on_repeated_tokens(causal, tokens, operator) -> None:
    mha = with_mixing(random_layer(3, 12, 4, 0), identity_mixing(3, 1))
    assert additivity_gap(mha, tokens, causal=causal, operator=OPERATORS[operator]) < 1e-13


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("causal", "select"), [(None, 0), (None, 1), ("token", 0), ("token", 1), ("virtual", 1)])
def test_e1_the_corrected_layer_is_tanh(causal, select, operator) -> None:
    assert law_error(2, causal=causal, select=select, operator=OPERATORS[operator]) < 1e-14


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("causal", [None, "token", "virtual"])
def test_e1_the_printed_layer_is_linear(causal, operator) -> None:
    printed = with_mixing(random_layer(3, 12, 4, 0), signed_mixing(3, 2, "printed"))
    assert additivity_gap(printed, 4, causal=causal, operator=OPERATORS[operator]) < 1e-13
    corrected = with_mixing(random_layer(3, 12, 4, 0), signed_mixing(3, 2, "corrected"))
    assert additivity_gap(corrected, 4, causal=causal, operator=OPERATORS[operator]) > 0.1


def test_under_virtual_causality_the_first_pseudo_head_follows_another_law() -> None:
    """Token n sees n pairs and its own +key: (n·2 sinh s + e^s) / (n·2 cosh s + e^s), linear at n = 0 only."""
    base = random_layer(3, 12, 4, 0)
    layer = with_mixing(base, signed_mixing(3, 2, "corrected"))
    x, _ = inputs(layer, 0)
    s, v = score_and_value(layer, x)
    got = run(layer, repeated(x, 5), causal="virtual", operator=interleaved_head_attention)
    for n in range(5):
        law = (n * 2 * s.sinh() + s.exp()) / (n * 2 * s.cosh() + s.exp())
        torch.testing.assert_close(got[:, n], law[..., None] * v, rtol=0, atol=1e-13)


@pytest.mark.parametrize("pseudo_heads", [2, 3, 4, 7])
def test_e12_zero_coefficients_stay_in_the_softmax(pseudo_heads) -> None:
    assert law_error(pseudo_heads, causal=None) < 1e-14
    if pseudo_heads > 2:
        base = random_layer(3, 12, 4, 0)
        two, more = (with_mixing(base, signed_mixing(3, p, "corrected")) for p in (2, pseudo_heads))
        x, _ = inputs(base, 0)
        outs = [run(t, repeated(x, 4), causal=None, operator=reference.interleaved_head_attention) for t in (two, more)]
        assert (outs[0] - outs[1]).abs().max() > 0.05
        # The theorem stands: the layer is nonlinear all the same.
        assert additivity_gap(more, 4, causal=None, operator=reference.interleaved_head_attention) > 0.05
