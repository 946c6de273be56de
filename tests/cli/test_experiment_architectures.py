"""`iha experiment architectures`: options reach the room, records are written, the table is shown."""

from cli.calls import assert_refused, iha
from iha.records import read_record


def test_a_small_run_is_recorded_and_shown(tmp_path):
    words = ["--tasks", "digits", "--seeds", "4", "--rates", "1e-3", "--steps", 2, "--out", tmp_path / "out"]
    result = iha("experiment", "architectures", *words)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "out" / "digits.json", "architectures")
    assert record.config == {"task": "digits", "steps": 2, "batch": 64, "rates": [1e-3], "seeds": [4]}
    assert "handwritten digits (2 steps, 1 seeds)" in result.output


def test_bad_input_leaves_nothing_behind(tmp_path):
    out = tmp_path / "out"
    assert_refused(iha("experiment", "architectures", "--tasks", "chess", "--out", out), "chess")
    assert_refused(iha("experiment", "architectures", "--seeds", "one", "--out", out), "'one'")
    assert not out.exists()
