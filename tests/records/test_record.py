"""The envelope: complete, readable again, and refused by name when damaged."""

import json
import re

import pytest

from iha.records import Record, read_record, write_record
from iha.version import __version__


@pytest.fixture
def record():
    return Record.new("test", command="iha test", config={"width": 8}, seed=3).finished({"loss": 1.5})


def test_a_record_survives_its_file(tmp_path, record):
    write_record(tmp_path / "a.json", record)
    assert read_record(tmp_path / "a.json", "test") == record


def test_the_envelope_says_where_it_comes_from(record):
    import torch

    assert torch.__version__.startswith(record.versions["torch"].split("+")[0])
    assert record.versions["iha"] == __version__
    assert record.machine["threads"] == torch.get_num_threads()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record.started)
    assert 0 <= record.seconds < 60


def test_a_resumed_run_gives_its_own_time(record):
    assert record.finished(None, seconds=7200).seconds == 7200


def test_another_kind_is_refused(tmp_path, record):
    write_record(tmp_path / "a.json", record)
    with pytest.raises(ValueError, match=r"a\.json holds 'test', not 'bench'"):
        read_record(tmp_path / "a.json", "bench")


@pytest.mark.parametrize("damage", ["missing field", "extra field", "schema", "list"])
def test_damage_is_named(tmp_path, record, damage):
    path = tmp_path / "a.json"
    write_record(path, record)
    content = json.loads(path.read_text())
    if damage == "missing field":
        del content["seed"]
    elif damage == "extra field":
        content["more"] = 1
    elif damage == "schema":
        content["schema"] = 99
    else:
        content = [content]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"a\.json"):
        read_record(path)
