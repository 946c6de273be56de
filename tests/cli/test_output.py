import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from iha.cli.main import app
from iha.cli.output import check_results_in, print_record, results_in
from iha.records import Record
from refusal import refused


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


def test_what_is_plainly_no_directory_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("file", "file/below/further", "x" * 300, "dangling"):
        with pytest.raises(ValueError, match="cannot write results to"):
            check_results_in(tmp_path / name)
    check_results_in(tmp_path)
    check_results_in(tmp_path / "new" / "one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


ALL = [
    (words, command)
    for words, command in _commands(typer.main.get_command(app))
    if any(parameter.name == "out" for parameter in command.params)
]


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_every_command_looks_at_its_out_before_all_else(words: tuple[str, ...], command: Any, tmp_path: Path) -> None:
    """Arguments that it needs name nothing that exists: the refusal is of --out, so that was looked at first."""
    (tmp_path / "file").touch()
    for parameter in command.params:
        if parameter.required:
            words += ("nothing",) if parameter.param_type_name == "argument" else (parameter.opts[0], "nothing")
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        assert refused([*words, "--out", out], tmp_path).startswith(f"error: cannot write results to {tmp_path}")


def test_the_record_is_json(capsys: pytest.CaptureFixture) -> None:
    record = Record.new("test", command="iha test", config={"a": 1}, seed=3).finished({"b": [1.5, "ü"]})
    print_record(record)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["results"], printed["seed"]) == ("test", {"b": [1.5, "ü"]}, 3)
