"""Records of a run before committed ones, newest first; what is no record is skipped, what is damaged is named."""

import json
from dataclasses import replace

import pytest

from iha.records import Record, write_record
from iha.report.page.results import Results, records_below


def record(kind: str, started: str, results: object = None) -> Record:
    return replace(Record.new(kind, command="iha", config={}), started=started).finished(results, 1.0)


@pytest.fixture
def places(tmp_path):
    for name in ("run/deep", "kept"):
        (tmp_path / name).mkdir(parents=True)
    write_record(tmp_path / "run" / "deep" / "old.json", record("verify", "2026-01-01T00:00:00+00:00", 1))
    write_record(tmp_path / "run" / "new.json", record("verify", "2026-02-01T00:00:00+00:00", 2))
    write_record(tmp_path / "kept" / "newest.json", record("verify", "2026-03-01T00:00:00+00:00", 3))
    write_record(tmp_path / "kept" / "other.json", record("flops", "2026-03-01T00:00:00+00:00", 4))
    (tmp_path / "run" / "config.json").write_text(json.dumps({"hidden_size": 16}))
    (tmp_path / "run" / ".hidden").mkdir()
    write_record(tmp_path / "run" / ".hidden" / "x.json", record("verify", "2027-01-01T00:00:00+00:00", 5))
    return tmp_path / "run", tmp_path / "kept"


def test_this_run_comes_first_then_the_newest(places):
    results = Results(*places)
    assert [found.record.results for found in results.of_kind("verify")] == [2, 1, 3]
    assert [found.record.results for found in results.of_kind("verify", "committed")] == [3]
    assert results.best("verify").path.name == "new.json"
    assert results.best("flops").origin == "committed"
    assert results.best("nothing") is None
    assert len(results.found) == 4


def test_without_a_run_the_committed_ones_are_left(places):
    assert Results(None, places[1]).best("verify").record.results == 3
    assert Results(None, None).found == []


def test_damaged_files_are_named(places):
    (places[0] / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json"):
        list(records_below(places[0]))
    (places[0] / "bad.json").write_text(json.dumps({"schema": 1, "kind": "verify"}))
    with pytest.raises(ValueError, match=r"bad\.json is not a record"):
        list(records_below(places[0]))
