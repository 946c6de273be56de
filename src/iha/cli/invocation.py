"""How a command is called and how it fails: in one line.

Exit codes: 0 done; 1 done, but something that should hold does not; 2 refused, with nothing written; 70 a bug in iha;
130 interrupted. Set IHA_TRACEBACK=1 to see where an error comes from.
"""

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from iha.cli.output import check_results_in

REFUSED, BUG, INTERRUPTED = 2, 70, 130
_LONGEST = 1000  # characters of a message: some quote a whole file
# Errors that the user can fix: input, disk, memory, a package that is not installed.
_THEIRS = (ValueError, OSError, MemoryError, ImportError, OverflowError, RecursionError)
_EXTRAS = {
    "accelerate": "models", "datasets": "train", "lm_eval": "eval", "matplotlib": "report", "peft": "models",
    "safetensors": "models", "tokenizers": "models", "torchdata": "train", "transformers": "models",
}  # fmt: skip
_arguments: ContextVar[list[str] | None] = ContextVar("arguments", default=None)


def command_line() -> str:
    """The command as typed, for a record. Without --out and --json, which do not affect the results."""
    arguments = _arguments.get()
    words = list(sys.argv[1:] if arguments is None else arguments)
    kept = []
    while words:
        word = words.pop(0)
        if word == "--out":
            words = words[1:]
        elif word != "--json" and not word.startswith("--out="):
            kept.append(word)
    return shlex.join(["iha", *kept])


class Command(TyperCommand):
    """Typer's, with help that shows no type beside a flag. An `--out` that cannot be is refused before all else."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        if (out := ctx.params.get("out")) is not None:
            check_results_in(Path(out))
        return super().invoke(ctx)


class Group(TyperGroup):
    """The root group: it reports every error of every command in one line on stderr."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **options: Any
    ) -> Any:
        token = _arguments.set(list(sys.argv[1:] if args is None else args))
        try:
            code = super().main(args=args, standalone_mode=False, **options)
            if code == INTERRUPTED:  # typer has caught KeyboardInterrupt
                raise KeyboardInterrupt
        except (Exception, KeyboardInterrupt) as error:
            if not standalone_mode:
                raise
            code = _report(error)
        finally:
            _arguments.reset(token)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def one_line(error: BaseException) -> str:
    """The error message without line breaks and control characters, even if it quotes some."""
    if hasattr(error, "format_message"):  # a command line that typer cannot parse
        text = error.format_message().removeprefix("Invalid value: ")
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    elif isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in _EXTRAS:
        extra = _EXTRAS[(error.name or "").split(".")[0]]
        text = f"this needs the package {error.name}: pip install 'iha[{extra}]'"
    elif isinstance(error, RecursionError):
        text = f"nested too deeply ({error})"
    elif isinstance(error, MemoryError):
        text = f"out of memory {error}"
    else:
        text = str(error) or type(error).__name__
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _report(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    if os.environ.get("IHA_TRACEBACK"):
        traceback.print_exception(error)
    if hasattr(error, "format_message"):
        if not error.format_message():  # a group called without a command shows its help
            error.show()  # type: ignore[attr-defined]
        else:
            print(f"error: {one_line(error)}", file=sys.stderr)
        return REFUSED
    if isinstance(error, _THEIRS) or _out_of_memory(error):
        print(f"error: {one_line(error)}", file=sys.stderr)
        return REFUSED
    hint = "this is a bug in iha; IHA_TRACEBACK=1 shows where"
    print(f"error: {type(error).__name__}: {one_line(error)} ({hint})", file=sys.stderr)
    return BUG


def _out_of_memory(error: BaseException) -> bool:
    """Whether this is an out-of-memory error. torch has a class for it on GPUs but not on CPUs."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""  # typer would show <bool>, as if a value had to follow
    return parameters
