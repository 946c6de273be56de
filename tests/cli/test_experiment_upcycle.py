"""`iha experiment upcycle`: its plan, and what it refuses."""

from pathlib import Path

import pytest

from cli.calls import assert_refused, iha

RECIPES = Path(__file__).parents[2] / "recipes" / "scale-model"


def upcycle(tmp_path, *words):
    places = ["--recipes", RECIPES, "--runs", tmp_path / "runs", "--out", tmp_path / "records"]
    return iha("experiment", "upcycle", *words, *places)


def test_the_plan_has_every_variant_beside_the_model_it_came_from(tmp_path):
    result = upcycle(tmp_path, "--variant", "P=2, frozen", "--seeds", "0,1", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "upcycle-iha-p2-frozen-s1" in result.output
    assert "4 runs" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--variant", "P=3"], "variants: 'P=3' is not one of"), (["--seeds", "x"], "expected ints separated by commas")],
)
def test_mistakes_are_refused(words, message, tmp_path):
    assert_refused(upcycle(tmp_path, *words, "--dry-run"), message)
