"""What a refused command must do, shared by the tests of bad input."""

from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from iha.cli.main import app

HUGE = "1" + "0" * 30


def refused(arguments: Sequence[object], directory: Path) -> str:
    """One line, exit code 2, nothing written below `directory`; the line."""
    before = _contents(directory)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (arguments, result.exit_code, result.output, result.exception)
    assert result.stdout == "", arguments
    assert result.stderr.startswith("error: "), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert _contents(directory) == before, arguments
    return result.stderr


def _contents(directory: Path) -> dict[Path, int]:
    """Every path, with the time of the last change if it is a file: checking a directory may touch it."""
    return {path: 0 if path.is_dir() else path.lstat().st_mtime_ns for path in directory.rglob("*")}
