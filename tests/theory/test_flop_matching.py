"""Appendix C; errata E11 and E26."""

from fractions import Fraction

import pytest

from iha.layers.schedule import flop_matched_window
from iha.theory.flop_matching import (
    check,
    global_pairs,
    limit_ratio,
    local_pairs,
    measured_pairs,
    mixing_share,
    schedule_ratio,
)


@pytest.mark.parametrize(("N", "P", "W"), [(1, 1, 1), (8, 2, 1), (8, 2, 3), (9, 3, 9), (9, 3, 20), (64, 4, 2)])
def test_pairs_in_closed_form_are_those_of_the_operator(N, P, W) -> None:
    assert local_pairs(N, P, W) == measured_pairs(N, P, W)
    assert local_pairs(N, P, W) == sum(j <= i and i - j < W * P for i in range(N * P) for j in range(N * P))


def test_global_layers() -> None:
    for N in (1, 6, 30):
        assert global_pairs(N, causal=True) == measured_pairs(N, 1, None)
        assert global_pairs(N, causal=False) == measured_pairs(N, 1, None, None)
        assert measured_pairs(N, 3, None, None) == 9 * global_pairs(N, causal=False)


def test_e11_three_fifths_counts_the_global_layer_without_its_causal_half() -> None:
    N, P = 2**15, 4
    W = N // (2 * P * P)
    as_printed = schedule_ratio(N, P, W, global_layer_causal=False, baseline_causal=False)
    # 3/5 less the start of the sequence, where the window is not full: 4/5 · ½ · 1/(4P²).
    assert float(as_printed) == pytest.approx(0.6 - 0.4 / (4 * P * P), abs=1e-4)
    both_causal = schedule_ratio(N, P, W, global_layer_causal=True, baseline_causal=True)
    assert float(both_causal) == pytest.approx(float(limit_ratio(P)), abs=1e-4)
    assert limit_ratio(P) == 1 - Fraction(1, 5 * P * P)


def test_e11_the_window_of_the_figure_costs_p_times_more() -> None:
    N, P = 4096, 8
    figure, text = (local_pairs(N, P, W) for W in (N // (2 * P), N // (2 * P * P)))
    # P times as many, less the corner where the wider window is not yet full: half of its WP x WP square.
    assert figure / text == pytest.approx(P * (1 - 1 / (4 * P)) / (1 - 1 / (4 * P * P)), rel=1e-3)


def test_e26_the_window_at_p_equal_h_and_the_mixing_left_out() -> None:
    with pytest.raises(ValueError, match="8192 tokens, 100 pseudo-heads"):
        flop_matched_window(8192, 100)  # no window at all
    assert flop_matched_window(8192, 20) == 10  # of 10.24
    # Mixing against the attention of a local layer, by hand: P·(3H + 1) / N up to the edge.
    N, H, D = 8192, 20, 128
    for P in (2, 4, 8):
        assert float(mixing_share(N, H, P, D)) == pytest.approx(P * (3 * H + 1) / N, rel=0.1)
    assert mixing_share(N, H, 20, D) > Fraction(1, 10)


def test_all_claims_hold() -> None:
    assert [claim for claim in check() if not claim.passed] == []
