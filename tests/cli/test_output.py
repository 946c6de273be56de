import json
from pathlib import Path

import pytest

from iha.cli.output import print_record, results_in
from iha.records import Record


def _refused(path: Path, writes: bool = False) -> None:
    with results_in(path) as out:
        assert out.is_dir()
        if writes:
            (out / "result.json").touch()
        raise ValueError("refused")


def test_a_refused_command_leaves_no_directory_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="refused"):
        _refused(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_or_was_written_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="refused"):
        _refused(tmp_path / "a" / "b", writes=True)
    assert (tmp_path / "a" / "b" / "result.json").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="refused"):
        _refused(tmp_path / "empty")
    assert (tmp_path / "empty").exists()


def test_a_directory_that_cannot_be_written_is_found_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300), Path("/proc/nowhere")):
        with pytest.raises(ValueError, match="cannot write results to"), results_in(path):
            pytest.fail("work was begun")


def test_the_record_is_json(capsys: pytest.CaptureFixture) -> None:
    record = Record.new("test", command="iha test", config={"a": 1}, seed=3).finished({"b": [1.5, "ü"]})
    print_record(record)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["results"], printed["seed"]) == ("test", {"b": [1.5, "ü"]}, 3)
