"""`iha experiment measure`: options into settings, tables out of the records."""

import pytest

from cli.calls import assert_refused, iha
from scale_model_records import measured_record


def test_options_reach_the_room_and_its_tables_are_shown(tmp_path, monkeypatch):
    asked = []

    def measure_all(out, runs, settings, *, command, names, progress):
        asked.append((out, runs, settings, tuple(names)))
        return [measured_record("iha", 0, retrieval={"single": {"256": 0.75}})]

    monkeypatch.setattr("iha.experiment.measure.measure_all", measure_all)
    words = ["pretrain-iha-s0", "--lengths", "256,512", "--tasks", "single,pairs-all", "--samples", 3, "--problems", 4]
    result = iha("experiment", "measure", *words, "--runs", tmp_path / "runs", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    ((out, runs, settings, names),) = asked
    assert (out, runs, names) == (tmp_path / "out", tmp_path / "runs", ("pretrain-iha-s0",))
    assert (settings.lengths, settings.tasks) == ((256, 512), ("single", "pairs-all"))
    assert (settings.samples, settings.problems, settings.puzzles) == (3, 4, 128)
    assert "75" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lengths", "256,x"], "got '256,x'"),
        (["--tasks", "nothing"], "'nothing' is not one of single"),
        (["--samples", "0"], "samples must be at least 1, got 0"),
        ([], "has an export"),
    ],
)
def test_mistakes_are_refused(words, message, tmp_path):
    places = ["--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    assert_refused(iha("experiment", "measure", *words, *places), message)
