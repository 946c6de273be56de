"""What all commands with results share: `--out`, `--json`, and a directory that is checked before any work."""

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


def print_record(record: Record) -> None:
    """Print a record as JSON, for `--json`."""
    typer.echo(json.dumps(asdict(record), indent=1, ensure_ascii=False, allow_nan=False))
