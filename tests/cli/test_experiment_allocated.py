"""`iha experiment allocated`: its plan, and what it refuses."""

from pathlib import Path

import pytest

from cli.calls import assert_refused, iha

RECIPES = Path(__file__).parents[2] / "recipes" / "scale-model"


def allocated(tmp_path, *words):
    places = ["--recipes", RECIPES, "--runs", tmp_path / "runs", "--out", tmp_path / "records"]
    return iha("experiment", "allocated", *words, *places)


def test_the_plan_has_both_reductions_beside_their_source(tmp_path):
    result = allocated(tmp_path, "--seeds", "0,1", "--dry-run")
    assert result.exit_code == 0, result.output
    for name in ("allocate-iha-s0", "allocate-iha-uniform-s1", "allocate-iha-allocated-s1"):
        assert name in result.output
    assert "6 runs" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--share", "2"], "share must be between 0 and 1, got 2.0"), (["--seeds", "x"], "expected ints")],
)
def test_mistakes_are_refused(words, message, tmp_path):
    assert_refused(allocated(tmp_path, *words, "--dry-run"), message)
