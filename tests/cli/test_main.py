"""The command itself: version, completion, help of everything, and nothing heavy loaded to show it."""

import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from iha.cli.main import app as iha_app
from iha.version import __version__


def test_version_and_python_m() -> None:
    assert CliRunner().invoke(iha_app, ["--version"]).stdout == f"iha {__version__}\n"
    result = subprocess.run([sys.executable, "-m", "iha", "--version"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"iha {__version__}\n")


def test_completion_knows_the_commands() -> None:
    environment = {"_IHA_COMPLETE": "complete_bash", "COMP_WORDS": "iha con", "COMP_CWORD": "1"}
    result = CliRunner().invoke(iha_app, [], env=environment, prog_name="iha")
    assert result.stdout.split() == ["convert"]


def every_command() -> list[list[str]]:
    found, todo = [], [([], typer.main.get_command(iha_app))]
    while todo:
        path, command = todo.pop()
        if hasattr(command, "commands"):
            todo += [([*path, name], below) for name, below in command.commands.items()]
        else:
            found.append(path)
    return sorted(found)


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_every_command_has_help_without_flag_types(command: list[str]) -> None:
    result = CliRunner().invoke(iha_app, [*command, "--help"], env={"COLUMNS": "100"}, prog_name="iha")
    assert result.exit_code == 0
    assert f"Usage: iha {' '.join(command)}" in " ".join(result.stdout.split())
    assert "<bool>" not in result.stdout


def test_every_command_is_there() -> None:
    names = {" ".join(command) for command in every_command()}
    assert {"verify", "train", "eval run", "bench attention", "experiment scale-model", "reproduce"} <= names


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from iha.cli.main import app; "
        "print([name for name in ('torch', 'transformers', 'matplotlib', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
