"""Student's t against its printed tables and against SciPy."""

import pytest

from iha.experiment.statistics import paired_test, students_t, summary, two_sided_p

TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 30: 2.042, 200: 1.972}  # two-sided 5 %


@pytest.mark.parametrize("degrees", TABLE)
def test_the_printed_table(degrees):
    assert students_t(0.05, degrees) == pytest.approx(TABLE[degrees], abs=6e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 12])
def test_p_is_scipys(degrees):
    stats = pytest.importorskip("scipy.stats")
    for t in (-3.0, 0.0, 0.3, 1.0, 8.0):
        assert two_sided_p(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), abs=1e-12)


def test_a_paired_test_by_hand():
    found = paired_test([-1.0, -2.0, -3.0])  # mean -2, standard error 1 / sqrt 3
    assert found["t"] == pytest.approx(-2 * 3**0.5)
    assert found["p"] == pytest.approx(1 - (12 / (2 + 12)) ** 0.5)  # closed form for two degrees of freedom
    assert found["below_zero"] == 3


def test_one_seed_or_no_spread_has_no_p():
    assert paired_test([0.5])["p"] is None
    assert paired_test([0.5, 0.5])["p"] is None
    assert paired_test([])["n"] == 0


def test_the_interval_is_students():
    found = summary([1.0, 2.0, 3.0])
    assert (found["mean"], found["sd"]) == (2.0, 1.0)
    assert found["ci95"] == pytest.approx(4.3027 / 3**0.5, abs=1e-4)
    assert summary([])["mean"] is None
    assert summary([1.0])["ci95"] is None


def test_no_degrees_of_freedom_are_an_error():
    with pytest.raises(ValueError, match="at least one degree of freedom, got 0"):
        two_sided_p(1.0, 0)
