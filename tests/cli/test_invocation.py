"""The one place where errors end: one line on stderr, an exit code, no traceback unless it is asked for."""

import errno
import sys
from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner

from iha.cli.invocation import Command, Group, command_line


def _run(fails: Callable[[], None], *arguments: str, **environment: str):
    app = typer.Typer(cls=Group, pretty_exceptions_enable=False)

    @app.command(cls=Command)
    def work(number: int = 1, flag: bool = False) -> None:
        fails()

    @app.command(cls=Command)
    def other() -> None:
        pass

    return CliRunner().invoke(app, ["work", *arguments], env=environment)


def _raises(error: BaseException) -> Callable[[], None]:
    def fails() -> None:
        raise error

    return fails


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("scale must not be 0"), 2, "scale must not be 0"),
        (ValueError("two\n  lines\tand \x1b[31mred"), 2, r"two lines and \x1b[31mred"),
        (ValueError(), 2, "ValueError"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), 2, "'utf-8' codec can't decode"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "weights"), 2, "weights: No such file"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
        (MemoryError(), 2, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 10 bytes"), 2, "can't allocate memory"),
        (RecursionError("maximum recursion depth exceeded"), 2, "nested too deeply"),
        (ModuleNotFoundError("No module named 'transformers'", name="transformers"), 2, "iha[models]"),
        (ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib.pyplot"), 2, "iha[report]"),
        (typer.BadParameter("give one of them"), 2, "give one of them"),
        (KeyError("mechanism"), 70, "KeyError: 'mechanism' (this is a bug in iha; IHA_TRACEBACK=1 shows where)"),
        (TypeError("unsupported"), 70, "TypeError: unsupported"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_line_and_a_code(error: BaseException, code: int, message: str) -> None:
    result = _run(_raises(error))
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_a_message_that_quotes_a_whole_file_is_cut() -> None:
    assert len(_run(_raises(ValueError("x" * 10**6))).stderr) < 1100


def test_the_traceback_is_shown_when_asked_for() -> None:
    result = _run(_raises(KeyError("lost")), IHA_TRACEBACK="1")
    assert "Traceback" in result.stderr
    assert "in fails" in result.stderr


@pytest.mark.parametrize("arguments", [("--number", "x"), ("--number",), ("--unknown",), ("surplus",)])
def test_a_command_line_that_cannot_be_parsed_is_one_line_too(arguments: tuple[str, ...]) -> None:
    result = _run(lambda: None, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_exit_codes_of_commands_pass_through() -> None:
    assert _run(lambda: None).exit_code == 0
    assert _run(_raises(typer.Exit(1))).exit_code == 1


def test_the_command_line_as_typed_without_where_results_go() -> None:
    seen = []
    result = _run(lambda: seen.append(command_line()), "--number", "3", "--flag")
    assert result.exit_code == 0, result.output
    assert seen == ["iha work --number 3 --flag"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["flops", "--out", "x", "--heads", "4"], "iha flops --heads 4"),
        (["flops", "--out=x y", "--json"], "iha flops"),
        (["generate", "model", "a b", "--out"], "iha generate model 'a b'"),
    ],
)
def test_command_line_reads_argv(arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["iha", *arguments])
    assert command_line() == expected


def test_flags_are_shown_without_a_type() -> None:
    result = _run(lambda: None, "--help")
    assert "<int>" in result.stdout
    assert "bool" not in result.stdout
