"""`iha experiment compare`: records in, the comparison beside them, tables on the screen."""

import pytest

from cli.calls import assert_refused, iha
from iha.records import read_record, write_record
from scale_model_records import run_record


def test_recorded_runs_are_compared_again(tmp_path):
    for run in (run_record(name, 0, (2.0, loss)) for name, loss in (("global", 1.0), ("iha", 0.9))):
        write_record(tmp_path / f"{run.config['name']}.json", run)
    result = iha("experiment", "compare", tmp_path)
    assert result.exit_code == 0, result.output
    compared = read_record(tmp_path / "comparison.json", "scale-model")
    (row,) = (row for row in compared.results["pretrain"]["rows"] if row["mechanism"] == "iha")
    assert row["paired"]["mean"] == pytest.approx(-0.1)
    assert compared.command.startswith("iha experiment compare")
    assert "0.9000" in result.output


def test_a_directory_without_runs_is_refused(tmp_path):
    assert_refused(iha("experiment", "compare", tmp_path), "has no record of a run")
    assert not list(tmp_path.iterdir())
