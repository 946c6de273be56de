"""`iha synth` from the command line: a tiny sweep, and refusals that leave nothing behind."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from iha.cli.synth import synth

app = typer.Typer()
app.command()(synth)
TINY = ["--train-examples", "64", "--held-out-examples", "32", "--epochs", "1", "--widths", "16", "--workers", "1"]


@pytest.mark.parametrize(
    ("task", "mechanisms"),
    [("binary", "mha,iha,simplicial"), pytest.param("cpm3", "mha", marks=pytest.mark.slow)]
    + [pytest.param(task, "mha,iha", marks=pytest.mark.slow) for task in ("ternary", "polynomial", "retrieval")],
)
def test_a_tiny_sweep(task: str, mechanisms: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = ["--sizes", "3,4"]
    result = CliRunner().invoke(app, [task, "--mechanisms", mechanisms, *sizes, *TINY, "--out", str(out)])
    assert result.exit_code == 0, result.output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["task"] == task
    assert [variant["config"]["mechanism"] for variant in summary["variants"]] == mechanisms.split(",")
    assert "finished" in result.output
    assert len(list((out / "runs").glob("*.json"))) == len(mechanisms.split(","))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quaternary"], "quaternary"),
        (["binary", "--mechanisms", "mha,linear"], "linear"),
        (["binary", "--mechanisms", "mha,,iha"], "separated by commas"),
        (["binary", "--scale", "huge"], "huge"),
        (["binary", "--heads", "two"], "two"),
        (["binary", "--heads", "3"], "3 heads"),
        (["binary", "--sizes", "2000"], "GiB"),
        (["binary", "--sizes", "0"], "at least 1"),
        (["retrieval", "--sizes", "99"], "99"),
        (["binary", "--workers", "-1"], "-1"),
    ],
)
def test_bad_input_is_refused_before_training(arguments: list[str], message: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert result.exit_code == 2
    assert message in result.output
    assert not out.exists()
