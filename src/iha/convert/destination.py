"""Writing a converted checkpoint: its directory appears complete or not at all."""

import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from iha.convert.checkpoint import INDEX, SINGLE, Checkpoint
from iha.records import Progress


@contextmanager
def complete_or_absent(destination: str | os.PathLike, num_bytes: int = 0) -> Iterator[Path]:
    """A temporary directory that is renamed to `destination` at the end, or removed if anything fails.

    It is locked while its process lives. Leftovers of a killed process are removed by the next call for the same
    destination.
    """
    destination = Path(os.path.abspath(destination))
    if destination.is_symlink():
        raise ValueError(f"the destination {destination} is a link")
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ValueError(f"the destination {destination} exists and is not an empty directory")
    destination.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(destination)
    free = shutil.disk_usage(destination.parent).free
    if num_bytes > free:
        raise ValueError(f"{destination} needs {num_bytes:,} bytes, the disk has {free:,} left")
    partial, lock = _locked_directory(destination)
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp makes it private
        for path in partial.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if destination.exists():
            destination.rmdir()
        partial.rename(destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def write_shards(
    directory: Path, shards: Iterator[tuple[str, dict[str, Tensor]]], count: int, progress: Progress
) -> None:
    """Write each shard as it arrives, and the index unless there is a single file."""
    from safetensors.torch import save_file

    weight_map: dict[str, str] = {}
    total = 0
    with progress.task("converting shards", total=count) as task:
        for name, tensors in shards:
            save_file({k: t.contiguous() for k, t in tensors.items()}, directory / name, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(tensors, name)
            total += sum(t.numel() * t.element_size() for t in tensors.values())
            task.advance(note=name)
    if set(weight_map.values()) != {SINGLE}:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def copy_companions(checkpoint: Checkpoint, directory: Path) -> None:
    """Copy tokenizer, chat template and generation settings."""
    for name in checkpoint.companions:
        shutil.copyfile(checkpoint.directory / name, directory / name)


def _locked_directory(destination: Path) -> tuple[Path, int]:
    """A new directory and the descriptor that locks it. The kernel releases the lock whenever the process ends."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent))
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return path, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _remove_leftovers(destination: Path) -> None:
    for name in glob.glob(f".{glob.escape(destination.name)}.*.partial", root_dir=destination.parent):
        leftover = destination.parent / name
        if leftover.is_symlink() or not leftover.is_dir():
            continue
        descriptor = os.open(leftover, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(leftover, ignore_errors=True)
        except BlockingIOError:
            continue  # its process is alive
        finally:
            os.close(descriptor)
