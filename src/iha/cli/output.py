"""What all commands with results share: `--out`, `--json`, and a directory that is checked before any work."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from iha.records import Record, output_directory

AsJson = Annotated[bool, typer.Option("--json", help="Print the record as JSON, and nothing else, on stdout.")]


@contextmanager
def results_in(path: Path) -> Iterator[Path]:
    """The directory of `--out`, created and checked first. A refused command removes the directory it has created."""
    made = [directory for directory in (path, *path.parents) if not os.path.lexists(directory)]
    try:
        yield output_directory(path)
    except BaseException:
        for directory in made:
            with suppress(OSError):
                directory.rmdir()  # only if it is empty
        raise


def check_results_in(path: Path) -> None:
    """Raise if `path` is plainly no place for results. It creates nothing: other processes may be about to."""
    try:
        with suppress(FileNotFoundError):
            os.lstat(path)  # a name too long, a directory that is a file
        nearest = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
        if not nearest.is_dir():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ValueError(f"cannot write results to {path}: {error.strerror}") from error


def print_record(record: Record) -> None:
    """Print a record as JSON, for `--json`."""
    typer.echo(json.dumps(asdict(record), indent=1, ensure_ascii=False, allow_nan=False))
