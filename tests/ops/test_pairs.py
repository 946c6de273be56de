"""Pairs by closed form against masks that are counted, and against the statements of appendix C."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from iha.layers.schedule import flop_matched_window
from iha.ops.pairs import bounds, counted, touched, visible
from iha.ops.visibility import Visibility

windows = st.one_of(st.none(), st.integers(1, 20))
rules = st.one_of(
    st.builds(Visibility, st.sampled_from(["virtual", "token", None]), windows, st.integers(1, 4)),
    st.builds(Visibility, st.sampled_from(["token", None]), windows, st.integers(1, 4), st.integers(1, 4)),
)


def mask(rule: Visibility, N: int) -> torch.Tensor:
    i, j = (torch.arange(N * P) for P in rule.per_token)
    return rule(i[:, None], j[None, :])


@given(rules, st.integers(1, 17))
def test_visible_is_the_mask_counted(rule: Visibility, N: int) -> None:
    seen = mask(rule, N).sum(dim=1)
    assert visible(rule, N) == seen.sum()
    assert visible(rule, N, order=2) == (seen**2).sum()


@given(rules, st.integers(1, 17))
def test_bounds_are_the_mask(rule: Visibility, N: int) -> None:
    M = N * rule.per_token[1]
    j = torch.arange(M)
    for i, row in enumerate(mask(rule, N)):
        first, last = bounds(rule, i)
        assert torch.equal(row, (j >= first) & (j < (M if last is None else last)))


@given(rules, st.integers(1, 17), st.integers(1, 9), st.integers(1, 9))
def test_touched_is_all_tiles_with_something_visible(rule: Visibility, N: int, rows: int, keys: int) -> None:
    seen = mask(rule, N)
    expected = sum(
        tile.numel() for part in seen.split(rows) for tile in part.split(keys, dim=1) if tile.any()
    )  # fmt: skip
    assert touched(rule, N, (rows, keys)) == expected
    assert touched(rule, N, (1, 1)) == visible(rule, N)


@pytest.mark.parametrize("P", [1, 2, 4, 8])
def test_the_papers_count_and_the_causal_one(P: int) -> None:
    """E11: a local layer counts N²/2 in both; a global one N² in the paper's, N²/2 in the causal one."""
    N = 8192
    local = Visibility("virtual", flop_matched_window(N, P), P)
    everything = Visibility("virtual")
    for convention, of_global in (("paper", N * N), ("causal", N * N // 2)):
        assert counted(local, N, convention=convention) == N * N // 2
        assert counted(everything, N, convention=convention) == of_global
    # Exactly, the window is cut off at the start: N²/2 (1 - 1/(4P²)) for a long sequence.
    exact = counted(local, N) / Fraction(N * N, 2)
    assert abs(exact - (1 - Fraction(1, 4 * P * P))) < Fraction(1, N)
    assert counted(everything, N) == Fraction(N * (N + 1), 2)


@given(rules, st.integers(1, 40), st.sampled_from([1, 2]))
def test_estimates_bound_the_exact_count(rule: Visibility, N: int, order: int) -> None:
    assert counted(rule, N, order, "exact") <= counted(rule, N, order, "paper")
    assert counted(rule, N, order, "causal") <= counted(rule, N, order, "paper")


def test_estimates_converge_for_long_sequences() -> None:
    for rule in (
        Visibility("virtual"),
        Visibility("token", None, 3),
        Visibility(None, 64, 2),
        Visibility("token", 64, 2),
    ):
        for order in (1, 2):
            exact, estimate = counted(rule, 1 << 16, order), counted(rule, 1 << 16, order, "causal")
            assert abs(exact / estimate - 1) < Fraction(1, 500), (rule, order)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="num_tokens must be at least 1, got 0"):
        visible(Visibility(), 0)
    with pytest.raises(ValueError, match="'half'"):
        counted(Visibility(), 8, convention="half")
    with pytest.raises(ValueError, match=r"\(0, 128\)"):
        touched(Visibility(), 8, (0, 128))
