"""Files that are complete or absent: a kill at any moment leaves the previous content."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_LOCK = ".lock"


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary file in the same directory, then rename it over `path`.

    A reader never sees a partial file. When the disk is full, the old file stays and the temporary one is removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, content: object) -> None:
    """Standard JSON only: NaN and infinity raise ValueError, because other parsers reject them."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not readable JSON: {error}") from error


def remove_leftovers(directory: Path) -> None:
    """Delete the temporary files of killed processes. Those of live processes stay."""
    for leftover in directory.glob(".*.tmp"):
        owner = leftover.name.split(".")[-2]
        if not (owner.isdigit() and _alive(int(owner))):
            leftover.unlink(missing_ok=True)


def output_directory(path: Path) -> Path:
    """Create a directory for results and check that it can be written, before any work is done for it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write results to {path}: {error.strerror or error}") from error
    return path


@contextmanager
def work_in(directory: Path, *, is_worth_keeping: Callable[[], bool]) -> Iterator[None]:
    """Create `directory` and hold it for this process alone.

    If the work fails with nothing in it that is worth keeping, a directory that was created here is removed again.
    """
    created = [path for path in (directory, *directory.parents) if not os.path.lexists(path)]
    output_directory(directory)
    with locked(directory):
        try:
            yield
        except BaseException:
            if created and not is_worth_keeping():
                shutil.rmtree(directory, ignore_errors=True)
                for parent in created[1:]:
                    with suppress(OSError):
                        parent.rmdir()  # only if it is empty
            raise


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold `directory` for this process alone. The kernel releases the lock when the process ends, however it ends."""
    with (directory / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"{directory} is in use by another process") from error
        yield


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
