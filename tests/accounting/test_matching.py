"""The FLOP-matched window against closed forms and against its own definition."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iha.accounting import AttentionShape, matched_window, ratio_to_global
from iha.layers.schedule import LayerSpec, Schedule, named_schedule

SHAPE = AttentionShape(2560, 20)


def interleaved(P: int, depth: int = 5):
    def schedule(window: int) -> Schedule:
        return named_schedule("iha", depth, num_pseudo_heads=P, window=window)

    return schedule


@pytest.mark.parametrize("P", [2, 4, 8])
def test_closed_forms_of_the_conventions(P: int) -> None:
    """4·P²·N·W + N² = 5r·N² as the paper counts; 4·P²·N·W + N²/2 = 5·N²/2 with causal halves."""
    N = 8192
    for convention, target, expected in (
        ("paper", Fraction(3, 5), N // (2 * P * P)),
        ("paper", Fraction(1), N // (P * P)),
        ("causal", Fraction(1), N // (2 * P * P)),
    ):
        found = matched_window(SHAPE, N, interleaved(P), convention=convention, target=target)
        assert found.window == expected
        assert found.solution == expected
        assert found.ratio == float(target)


@pytest.mark.parametrize("P", [2, 4, 8])
def test_exact_window_solves_the_quadratic(P: int) -> None:
    """P²·N·W - (PW)²/2 = N²/2 for long sequences: W/N = 1 - sqrt(1 - 1/P²)."""
    N = 1 << 20
    found = matched_window(SHAPE, N, interleaved(P))
    assert found.solution / N == pytest.approx(1 - (1 - P**-2) ** 0.5, rel=1e-5)


@given(
    st.integers(64, 4096), st.integers(1, 4), st.integers(1, 26), st.sampled_from(["paper", "causal", "exact"]),
    st.sampled_from([("attention",), ("attention", "mixing"), ("projections", "mixing", "attention")]),
)  # fmt: skip
def test_the_window_is_the_largest_within_the_target(N: int, P: int, depth: int, convention: str, parts: tuple) -> None:
    def ratio(window: int) -> Fraction:
        return ratio_to_global(SHAPE, interleaved(P, depth)(window), N, convention, parts)

    if ratio(1) > 1:
        with pytest.raises(ValueError, match=f"at {N} tokens"):
            matched_window(SHAPE, N, interleaved(P, depth), convention=convention, parts=parts)
        return
    found = matched_window(SHAPE, N, interleaved(P, depth), convention=convention, parts=parts)
    assert float(ratio(found.window)) == found.ratio <= 1
    if found.ratio_above is None:
        assert found.window == N
    else:
        assert float(ratio(found.window + 1)) == found.ratio_above
        assert ratio(found.window + 1) > 1
        assert found.window <= found.solution < found.window + 1


def test_mixing_and_collapse_shorten_the_window() -> None:
    attention = matched_window(SHAPE, 8192, interleaved(4))
    everything = matched_window(SHAPE, 8192, interleaved(4), parts=("attention", "mixing"))
    assert everything.window < attention.window


def test_a_window_of_one_pseudo_head_need_not_end() -> None:
    found = matched_window(SHAPE, 512, interleaved(1))
    assert (found.window, found.ratio, found.ratio_above) == (512, 1.0, None)


def test_pairs_of_tokens_match_at_the_square_root() -> None:
    """N·w² = N²/2: what 2-simplicial attention may see for the price of global attention."""
    found = matched_window(SHAPE, 8192, lambda w: (LayerSpec("simplicial", w),), convention="causal")
    assert found.window == 64


def test_no_window_is_said() -> None:
    with pytest.raises(ValueError, match="no window of at least 1 token costs 1 of global attention at 64 tokens"):
        matched_window(SHAPE, 64, interleaved(20))
