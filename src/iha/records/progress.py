"""How a long function reports its progress, independent of the display. The cli draws bars from it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One piece of work under way."""

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        """Report that more steps are done; `note` is shown beside the bar, e.g. the current loss."""


class Progress(Protocol):
    def task(self, description: str, total: float | None = None, done: float = 0) -> AbstractContextManager[Task]:
        """A piece of work of `total` steps (None: unknown), of which `done` were done in an earlier session."""


class _Silent:
    def advance(self, steps: float = 1, note: str | None = None) -> None:
        pass

    @contextmanager
    def task(self, description: str, total: float | None = None, done: float = 0) -> Iterator[Task]:
        yield self


silent: Progress = _Silent()
