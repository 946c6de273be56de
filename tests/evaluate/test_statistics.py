import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iha.evaluate.paper import FINE_TUNED, PRETRAIN
from iha.evaluate.statistics import average_ranks, paired_interval


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (PRETRAIN, [1.4, 2.9, 2.9, 4.0, 3.5]),
        (FINE_TUNED, [1.5, 3.8, 4.3, 2.5, 2.8]),
    ],
)
def test_the_papers_average_ranks_come_out_of_its_rows(table, expected):
    assert list(table.rows) == ["IHA", "Global Attention", "Global+Local", "Talking Heads", "Diff Transformer"]
    assert [round(rank, 1) for rank in average_ranks(table.rows).values()] == expected


def test_ranks_by_hand():
    assert average_ranks({"a": [3, 1], "b": [2, None], "c": [2, 5]}) == {"a": 1.5, "b": 2.5, "c": 1.75}
    assert average_ranks({"a": [None]}) == {"a": None}
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        average_ranks({"a": [1], "b": [1, 2]})


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=6))
def test_ranks_are_those_of_scipy(rows):
    stats = pytest.importorskip("scipy.stats")
    expected = np.mean([stats.rankdata([-row[c] for row in rows]) for c in range(3)], axis=0)
    assert list(average_ranks({str(i): row for i, row in enumerate(rows)}).values()) == pytest.approx(expected)


def test_the_interval_is_the_normal_one_for_many_questions():
    rng = np.random.default_rng(0)
    difference = rng.normal(1.0, 2.0, 2000)
    theirs = rng.normal(0, 50, 2000)  # much wider than the difference: the pairs matter
    low, high = paired_interval([theirs + difference], [theirs])
    error = difference.std() / len(difference) ** 0.5
    assert (low, high) == pytest.approx((difference.mean() - 1.96 * error, difference.mean() + 1.96 * error), abs=0.02)


def test_groups_count_alike_whatever_their_size():
    low, high = paired_interval([[1.0] * 1000, [0.0]], [[0.0] * 1000, [0.0]])
    assert (low, high) == (0.5, 0.5)


def test_the_interval_is_the_same_every_time_and_needs_pairs():
    ours, theirs = [[1.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]
    assert paired_interval(ours, theirs) == paired_interval(ours, theirs)
    for bad in ([[1.0]], [], [[]]):
        with pytest.raises(ValueError, match="same questions"):
            paired_interval(bad, theirs if bad else [])
