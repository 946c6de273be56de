"""`iha experiment`: plans are printed, and bad input ends in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from iha.cli.main import app

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"


def run(*words):
    return CliRunner().invoke(app, ["experiment", *map(str, words)])


def test_the_plan_of_the_scale_model():
    words = ("--mechanisms", "iha", "--rates", "iha=4e-3", "--recipes", RECIPES, "--dry-run")
    result = run("scale-model", *words)
    assert result.exit_code == 0, result.output
    assert "pretrain-iha-s0" in result.output
    assert "3 runs" in result.output


def test_the_plan_of_upcycling():
    words = ("--variant", "P=2, frozen", "--seeds", "0,1", "--recipes", RECIPES, "--dry-run")
    result = run("upcycle", *words)
    assert result.exit_code == 0, result.output
    assert "upcycle-iha-p2-frozen-s1" in result.output
    assert "4 runs" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scale-model", "--rates", "iha", "--dry-run"), "--rates must be like global=2e-3,iha=4e-3, got 'iha'"),
        (("scale-model", "--seeds", "x", "--dry-run"), "expected ints separated by commas, got 'x'"),
        (("upcycle", "--variant", "P=3", "--dry-run"), "variants: 'P=3' is not one of"),
        (("measure", "--samples", "0"), "samples must be at least 1, got 0"),
        (("measure", "--tasks", "x"), "tasks: 'x' is not one of single"),
    ],
)
def test_bad_input_ends_in_one_line(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.output
