"""`iha reproduce`: the stages' states in a table, and an exit code that says whether all is well."""

import pytest

from cli.calls import assert_refused, iha
from iha.reproduce.run import Outcome
from iha.reproduce.stage import Stage

STAGE = Stage("flops", "FLOPs by formula", ("flops",), 0.1)


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("done before", 0), ("unexpected", 1), ("failed", 1)])
def test_states_and_exit_codes(state, code, tmp_path, monkeypatch):
    asked = []

    def run_stages(stages, out, *, command, progress):
        asked.append((stages[-1].name, out, command))
        return [Outcome(STAGE, state, 90.0, 60.0, "the last line")]

    monkeypatch.setattr("iha.reproduce.run.run_stages", run_stages)
    result = iha("reproduce", "--scale", "quick", "--out", tmp_path)
    assert result.exit_code == code, result.output
    assert asked == [("report", tmp_path, "iha reproduce --scale quick")]
    assert "FLOPs by formula" in result.output
    assert " 1.5 " in result.output  # minutes
    assert ("the last line" in result.output) == (code == 1)
    assert "the report:" not in result.output


def test_the_page_is_named_when_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr("iha.reproduce.run.run_stages", lambda *_, **__: [Outcome(STAGE, "done")])
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").touch()
    assert "the report: " in iha("reproduce", "--out", tmp_path).output


def test_an_unknown_scale_is_refused(tmp_path):
    assert_refused(iha("reproduce", "--scale", "huge", "--out", tmp_path / "out"), "got 'huge'")
