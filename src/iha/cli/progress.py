"""Progress bars on stderr. In a log, where bars cannot move, one line per minute instead."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from iha.records import Progress, Task

_SECONDS_BETWEEN_LINES = 60.0


def bars(file: IO[str] | None = None) -> "Bars":
    """A `Progress` for the packages below: `run(..., progress=bars())`, or `with bars() as progress:`."""
    return Bars(sys.stderr if file is None else file)


class Bars:
    """Tasks may be nested or run in parallel. The display appears with the first task and disappears with the last."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._live: RichProgress | None = None
        self._running = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live, self._running = None, 0

    @contextmanager
    def task(self, description: str, total: float | None = None, done: float = 0) -> Iterator[Task]:
        if not self._file.isatty():
            yield _Lines(description, total, done, self._file)
            return
        if self._live is None:
            self._live = _display(Console(file=self._file))
            self._live.start()
        live, self._running = self._live, self._running + 1
        handle = live.add_task(description, total=total, note="")
        live.update(handle, completed=done)
        try:
            yield _Bar(live, handle)
        finally:
            live.remove_task(handle)
            self._running -= 1
            if self._running <= 0:
                self.__exit__()


class _Bar:
    def __init__(self, live: RichProgress, handle: Any) -> None:
        self._live, self._handle = live, handle

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        fields: dict[str, Any] = {} if note is None else {"note": note}
        self._live.update(self._handle, advance=steps, **fields)


class _Lines:
    """The first line comes after a minute, so quick tasks write nothing to a log."""

    def __init__(self, description: str, total: float | None, done: float, file: IO[str]) -> None:
        self._description, self._total, self._done, self._file = description, total, done, file
        self._note = ""
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        self._done += steps
        self._note = self._note if note is None else note
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
            of = "" if self._total is None else f"/{self._total:g}"
            print(f"{self._description}: {self._done:g}{of} {self._note}".rstrip(), file=self._file, flush=True)


def _display(console: Console) -> RichProgress:
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[note]}", style="dim"),
    )  # fmt: skip
    return RichProgress(*columns, console=console, transient=True)


def _implements_the_protocol(bars: Bars) -> Progress:
    return bars  # for mypy
