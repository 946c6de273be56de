"""Checkpoints that are complete or invisible, written while training continues.

A checkpoint is a directory `step-00000500` of safetensors files, one per process, with `state.json` and a
`manifest.json` that has size and SHA-256 of every file. It is written under a hidden name and renamed when the manifest
is on disk. Nothing in it is unpickled. Several machines need a shared file system.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

from iha.records import read_json, write_json
from iha.train.parallel import Processes
from iha.train.recipe import Checkpoint

log = logging.getLogger(__name__)
MANIFEST, STATE = "manifest.json", "state.json"


class Checkpoints:
    """The checkpoints of a run directory."""

    def __init__(self, directory: Path, settings: Checkpoint, processes: Processes) -> None:
        self.directory, self.settings, self.processes = directory, settings, processes
        # A separate group: messages of the saving thread must not mix with those of training.
        self.group = dist.new_group(backend="gloo") if processes.world > 1 else None
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None
        processes.by_first(self._clear)

    def _clear(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for leftover in self.directory.glob(".step-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Copy now, write in the background. Waits for the previous save if it is still running."""
        self.wait()
        copied = {name: _copied(tensor) for name, tensor in tensors.items()}
        self.pending = self.pool.submit(self._write, step, copied, state)
        if not self.settings.asynchronous:
            self.wait()

    @property
    def failed(self) -> bool:
        """Whether a background save has failed; `wait` will raise its error."""
        return self.pending is not None and self.pending.done() and self.pending.exception() is not None

    def wait(self) -> None:
        """Wait until the current save is complete. ValueError when it failed."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        self.pool.shutdown(wait=True)

    def load(
        self, into: Callable[[dict[str, Any]], dict[str, Tensor]]
    ) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Load the newest complete checkpoint, into the tensors that `into` has for its state.

        Returns the state and these tensors, or None when there is no checkpoint.
        """
        for path in self._complete():
            problems = [problem for problem in self.processes.gathered(self._damage(path)) if problem]
            if problems:
                if self.processes.first:
                    log.warning("%s is skipped: %s", path.name, problems[0])
                continue
            state = read_json(path / STATE)
            reader = dcp.HuggingFaceStorageReader(str(path))
            tensors = into(state)
            dcp.load(tensors, storage_reader=reader, process_group=self.group)
            return state, tensors
        return None

    def _complete(self) -> list[Path]:
        """Newest first, as the first process sees them."""
        names = self.processes.by_first(lambda: sorted((p.name for p in self.directory.glob("step-*")), reverse=True))
        return [self.directory / name for name in names]

    def _damage(self, path: Path) -> str | None:
        """What is wrong with this process's share of the files, or None."""
        return damage(path, self.processes.rank, self.processes.world)

    def _write(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        final = self.directory / f"step-{step:08d}"
        partial = self.directory / f".{final.name}.partial"
        error = None
        try:
            writer = dcp.HuggingFaceStorageWriter(str(partial), save_distributed=True)
            dcp.save(tensors, storage_writer=writer, process_group=self.group)
            self._finish(partial, final, state)
        except (OSError, RuntimeError, dcp.CheckpointException) as raised:
            error = _reason(raised)
        if any(errors := self._gathered(error)):
            if self.processes.first:
                shutil.rmtree(partial, ignore_errors=True)
            reason = next(filter(None, errors))
            raise ValueError(f"checkpoint of step {step} could not be written to {self.directory}: {reason}")

    def _finish(self, partial: Path, final: Path, state: dict[str, Any]) -> None:
        """Every process hashes its own file; the first writes the manifest and makes the checkpoint visible."""
        own = partial.glob(f"shard-{self.processes.rank + 1:05d}-*")
        entries = {path.name: describe_file(path) for path in own}
        everyone = self._gathered(entries)
        if not self.processes.first:
            return
        write_json(partial / STATE, state)
        files = {name: entry for part in everyone for name, entry in part.items()} | {
            STATE: describe_file(partial / STATE)
        }
        write_json(partial / MANIFEST, {"files": files})
        _sync(partial)
        if final.exists():  # a damaged one of the same step, which loading has skipped
            self._remove(final)
        os.rename(partial, final)
        _sync(self.directory)
        self._retain()

    def _retain(self) -> None:
        present = sorted(self.directory.glob("step-*"), reverse=True)
        every = self.settings.keep_every
        for path in present[self.settings.keep :]:
            if every is None or int(path.name.removeprefix("step-")) % every:
                self._remove(path)

    def _remove(self, path: Path) -> None:
        hidden = path.with_name(f".{path.name}.removed")  # half-removed checkpoints are invisible too
        os.rename(path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _gathered(self, value: Any) -> list[Any]:
        values = [value] * self.processes.world
        if self.group is not None:
            dist.all_gather_object(values, value, group=self.group)
        return values


def complete_checkpoints(directory: Path) -> list[Path]:
    """Newest first; damaged ones are skipped with a message."""
    found = []
    for path in sorted(directory.glob("step-*"), reverse=True):
        if problem := damage(path):
            log.warning("%s is skipped: %s", path.name, problem)
        else:
            found.append(path)
    return found


def damage(path: Path, rank: int = 0, world: int = 1) -> str | None:
    """What is wrong with a checkpoint, or None. Processes share the files among them."""
    try:
        files = read_json(path / MANIFEST)["files"]
        for name in sorted(files)[rank::world]:
            if not (path / name).is_file():
                return f"{name} is missing"
            expected, found = files[name], (path / name).stat().st_size
            if found != expected["bytes"]:
                return f"{name} has {found} bytes, the manifest says {expected['bytes']}"
            if describe_file(path / name) != expected:
                return f"{name} has changed since it was written (SHA-256)"
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        return f"{MANIFEST} is not readable: {error}"
    return None


def describe_file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _copied(tensor: Tensor) -> Tensor:
    """A copy in host memory that training does not change; a DTensor keeps its layout."""
    with torch.no_grad():
        return tensor.detach().to("cpu", copy=True) if tensor.device.type != "cpu" else tensor.detach().clone()


def _reason(error: BaseException) -> str:
    """The first cause: DCP wraps the errors of all processes."""
    failures = getattr(error, "failures", None)
    while failures:
        wrapped = next(iter(failures.values()))
        error = wrapped[0] if isinstance(wrapped, tuple) else wrapped
        failures = getattr(error, "failures", None)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
