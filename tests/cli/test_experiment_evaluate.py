"""`iha experiment evaluate`: options into a scope, the record written and shown."""

import pytest

from cli.calls import assert_refused, iha
from iha.experiment.evaluation import Scope
from iha.records import Record, read_record


def test_options_reach_the_room(tmp_path, monkeypatch):
    asked = []

    def evaluate_models(runs, mechanisms, out, scope, *, command, progress):
        asked.append((runs, mechanisms, out, scope))
        out.mkdir()
        return Record.new("scale-model-evaluation", command=command, config={}).finished({})

    monkeypatch.setattr("iha.experiment.evaluation.evaluate_models", evaluate_models)
    words = ["--mechanisms", "iha,global", "--lengths", "512, 600", "--limit", 3, "--seed", 5]
    result = iha("experiment", "evaluate", tmp_path / "runs", *words, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert asked == [(tmp_path / "runs", ("iha", "global"), tmp_path / "out", Scope((512, 600), 3, 5))]
    record = read_record(tmp_path / "out" / "evaluation.json")
    assert record.command.startswith("iha experiment evaluate")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--lengths", "x"], "--lengths must be whole numbers"), (["--mechanisms", "flash"], "flash")],
)
def test_mistakes_are_refused(words, message, tmp_path):
    assert_refused(iha("experiment", "evaluate", tmp_path, *words, "--out", tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()
