"""`iha experiment scale-model`: its plan, its stop, and the comparison of what it trained."""

from pathlib import Path

import pytest

from cli.calls import assert_refused, iha
from iha.cli.train import STOPPED
from iha.experiment.run import StoppedError
from iha.records import read_record, write_record
from scale_model_records import run_record

RECIPES = Path(__file__).parents[2] / "recipes" / "scale-model"


def scale_model(tmp_path, *words):
    places = ["--recipes", RECIPES, "--runs", tmp_path / "runs", "--out", tmp_path / "records"]
    return iha("experiment", "scale-model", *words, *places)


def test_a_dry_run_shows_every_run_and_writes_nothing(tmp_path):
    words = ["--size", "quick", "--mechanisms", "iha,global", "--phases", "pretrain,tune", "--seeds", "0,3"]
    result = scale_model(tmp_path, *words, "--dry-run")
    assert result.exit_code == 0, result.output
    for phase in ("pretrain", "tune"):
        for mechanism in ("iha", "global"):
            for seed in (0, 3):
                assert f"{phase}-{mechanism}-s{seed}" in result.output
    assert "8 runs" in result.output
    assert not list(tmp_path.iterdir())


def test_a_mechanism_s_own_learning_rate_is_taken(tmp_path):
    words = ("--mechanisms", "iha", "--rates", "iha=4e-3", "--dry-run")
    result = scale_model(tmp_path, *words)
    assert result.exit_code == 0, result.output
    assert "pretrain-iha-s0" in result.output
    assert "3 runs" in result.output


def test_the_records_are_compared(tmp_path, monkeypatch):
    def run_all(planned, runs, out, *, command, progress):
        for seed in (0, 1):
            for attention, loss in (("global", 1.0), ("iha", 0.9)):
                write_record(out / f"pretrain-{attention}-s{seed}.json", run_record(attention, seed, (2.0, loss)))

    monkeypatch.setattr("iha.experiment.run.run_all", run_all)
    result = scale_model(tmp_path, "--size", "quick", "--phases", "pretrain", "--seeds", "0,1")
    assert result.exit_code == 0, result.output
    compared = read_record(tmp_path / "records" / "comparison.json", "scale-model").results
    (row,) = (row for row in compared["pretrain"]["rows"] if row["mechanism"] == "iha")
    assert row["paired"]["mean"] == pytest.approx(-0.1)
    assert "0.9000" in result.output


def test_a_stopped_run_has_the_code_of_a_stopped_run(tmp_path, monkeypatch):
    def run_all(*_, **__):
        raise StoppedError("stopped at step 3")

    monkeypatch.setattr("iha.experiment.run.run_all", run_all)
    result = scale_model(tmp_path, "--size", "quick")
    assert result.exit_code == STOPPED
    assert "stopped at step 3" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "one"], "expected ints separated by commas, got 'one'"),
        (["--speed", "0"], "--speed must be a positive number of tokens per second, got 0"),
        (["--rates", "iha"], "--rates must be like global=2e-3,iha=4e-3, got 'iha'"),
        (["--size", "huge"], "huge"),
        (["--mechanisms", "lstm"], "lstm"),
    ],
)
def test_mistakes_are_refused(words, message, tmp_path):
    assert_refused(scale_model(tmp_path, *words), message)
    assert not list(tmp_path.iterdir())
