"""`iha synth` and `iha collect` from the command line: a tiny sweep, and refusals that leave nothing behind."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from iha.cli.main import app
from iha.records import read_record

TINY = ["--train-examples", "64", "--held-out-examples", "32", "--epochs", "1", "--widths", "16", "--workers", "1"]


@pytest.mark.parametrize(
    ("task", "mechanisms"),
    [("binary", "multihead,iha,simplicial"), pytest.param("cpm3", "multihead", marks=pytest.mark.slow)]
    + [pytest.param(task, "multihead,iha", marks=pytest.mark.slow) for task in ("ternary", "polynomial", "retrieval")],
)
def test_a_tiny_sweep(task: str, mechanisms: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = ["--sizes", "3,4"]
    command = ["synth", task, "--mechanisms", mechanisms, *sizes, *TINY, "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    record = read_record(out / "summary.json", "synthetic-summary")
    assert record.command == " ".join(["iha", *command[:-2]])
    summary = record.results
    assert summary["task"] == task
    assert [variant["config"]["mechanism"] for variant in summary["variants"]] == mechanisms.split(",")
    assert f"{task}: test" in result.stdout
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
    result = CliRunner().invoke(app, ["synth", *arguments, "--out", str(out)])
    assert result.exit_code == 2
    assert message in result.output
    assert not out.exists()


def test_collect_keeps_a_sweep(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sweep, kept = tmp_path / "sweeps" / "one", tmp_path / "kept"
    runner = CliRunner()
    arguments = ["synth", "binary", "--mechanisms", "mha", "--sizes", "3", *TINY, "--out", str(sweep)]
    assert runner.invoke(app, arguments).exit_code == 0
    result = runner.invoke(app, ["collect", str(kept), "--sweeps", str(tmp_path / "sweeps")])
    assert result.exit_code == 0, result.output
    page = (kept / "README.md").read_text()
    assert "`iha synth binary --mechanisms mha --sizes 3" in page
    assert str(tmp_path) not in page
    assert (kept / "figures" / "one" / "bars.png").exists()
    (kept / "README.md").unlink()
    assert runner.invoke(app, ["collect", str(kept)]).exit_code == 0
    assert (kept / "README.md").read_text() == page
    again = tmp_path / "again"
    assert runner.invoke(app, ["collect", str(kept), "--figures", str(again)]).exit_code == 0
    assert {path.name for path in (again / "one").iterdir()} == {"bars.png", "curves.png", "price.png"}


def test_collect_names_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    result = CliRunner().invoke(app, ["collect", str(tmp_path)])
    assert result.exit_code == 2
    assert "bad.json is not a kept synthetic sweep" in result.output
