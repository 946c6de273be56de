"""Files are complete or absent, directories are checked before work and held by one process."""

import errno
import json
import os
import subprocess
import sys

import pytest

from iha.records import locked, output_directory, read_json, remove_leftovers, work_in, write_bytes, write_json


def test_what_is_written_is_read(tmp_path):
    content = {"α": [1, 2.5, None], "text": "×"}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_bytes(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_json_are_refused(tmp_path, value):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "damaged.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged\.json is not readable JSON"):
        read_json(tmp_path / "damaged.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.json"):
        read_json(tmp_path / "missing.json")


def test_leftovers_of_dead_processes_are_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in (dead.pid, os.getpid()):
        (tmp_path / f".a.json.{process}.tmp").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f".a.json.{os.getpid()}.tmp"]


def test_an_output_directory_is_made_and_left_empty(tmp_path):
    assert list(output_directory(tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_an_output_directory_that_cannot_be_is_refused(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot write results to .*file"):
        output_directory(tmp_path / below)


def test_a_directory_is_held_by_one_process(tmp_path):
    code = "import sys; from pathlib import Path; from iha.records import locked\nwith locked(Path(sys.argv[1])): pass"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with locked(tmp_path):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "is in use by another process" in second.stderr
    assert subprocess.run(command, check=False).returncode == 0


def test_json_is_readable_by_the_standard_library(tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("worth", [False, True])
def test_work_in_takes_back_what_it_created_for_nothing(tmp_path, existed: bool, worth: bool) -> None:
    directory = tmp_path / "above" / "run"
    if existed:
        directory.mkdir(parents=True)

    def refused() -> None:
        with work_in(directory, is_worth_keeping=lambda: worth):
            (directory / "begun").touch()
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        refused()
    assert directory.exists() == (existed or worth)
    assert directory.parent.exists() == (existed or worth)


def test_work_in_leaves_a_directory_that_another_process_holds(tmp_path) -> None:
    directory = tmp_path / "run"
    with work_in(directory, is_worth_keeping=lambda: False):
        with (
            pytest.raises(ValueError, match="in use"),
            work_in(directory, is_worth_keeping=lambda: False),
        ):
            pass
        assert directory.is_dir()
    assert directory.is_dir()
