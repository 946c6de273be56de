"""Many runs, in worker processes, with a live table; killed at any moment, the same call goes on where it was.

One thread a worker: the runs are small, and two of them side by side do more than one on two threads.
"""

import fcntl
import multiprocessing
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.live import Live

from iha.train.synthetic import checkpoint, memory
from iha.train.synthetic.config import RunConfig
from iha.train.synthetic.statistics import summarise
from iha.train.synthetic.table import progress_table
from iha.train.synthetic.trainer import build_model, train

MANIFEST, SUMMARY, RUNS = "sweep.json", "summary.json", "runs"
_REFRESH_SECONDS = 1.0
# A step allocates hundreds of megabytes and frees them. By default glibc gives such blocks back to the system, and
# fresh pages cost more than the arithmetic on them: up to a third of the time of a step. Read when a process starts.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def run_sweep(
    runs: Sequence[RunConfig], out: Path, *, workers: int = 0, kernels: str = "auto", console: Console | None = None
) -> dict[str, Any]:
    """Trains what is not trained yet and returns the summary, which is in `out` as JSON with every run's record.

    Refused before anything is written: configurations that cannot run here, and a directory with other contents.
    """
    workers = workers or min(len(runs), os.cpu_count() or 1)
    if workers < 1:
        raise ValueError(f"a sweep needs at least one run and one worker, got {len(runs)} runs and {workers} workers")
    check(runs)
    _check_directory(runs, out)
    console = console or Console()
    directory = out / RUNS
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        checkpoint.remove_leftovers(out)
        checkpoint.remove_leftovers(directory)
        if not (out / MANIFEST).exists():
            content = {"command": shlex.join(["iha", *sys.argv[1:]]), "runs": [run.as_json() for run in runs]}
            checkpoint.write_json(out / MANIFEST, content)
        with _default_environment(ALLOCATOR):
            _train_all(runs, directory, workers, kernels, console)
        summary = summarise(read_records(out))
        checkpoint.write_json(out / SUMMARY, summary)
    return summary


def read_records(out: Path) -> list[dict[str, Any]]:
    """Of all runs that have finished an epoch, in the sweep's order."""
    names = [
        RunConfig(**(run | {"sizes": tuple(run["sizes"])})).name for run in checkpoint.read_json(out / MANIFEST)["runs"]
    ]
    paths = [out / RUNS / f"{name}.json" for name in names]
    records = [checkpoint.read_json(path) for path in paths if path.exists()]
    return [record for record in records if record["history"]]


def check(runs: Sequence[RunConfig]) -> None:
    """Whatever can be known to fail is known before the first step."""
    names = [run.name for run in runs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"runs of one sweep must differ in what their name shows; these do not: {sorted(twice)}")
    for run in runs:
        run.check()
        memory.check_memory(run)
        with torch.device("meta"):
            build_model(run)  # heads that a mechanism cannot do raise here


def _check_directory(runs: Sequence[RunConfig], out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is not a directory")
    if not out.exists() or not any(path.name != ".lock" for path in out.iterdir()):
        return
    if not (out / MANIFEST).exists():
        raise ValueError(f"{out} is not empty and not the directory of a sweep: name another --out")
    found, wanted = checkpoint.read_json(out / MANIFEST)["runs"], [run.as_json() for run in runs]
    if found != wanted:
        raise ValueError(
            f"{out} holds the results of another configuration ({_difference(found, wanted)}): name another --out"
        )


def _difference(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} runs there, {len(wanted)} asked for"
    first = next((a, b) for a, b in zip(found, wanted, strict=True) if a != b)
    return ", ".join(
        f"{key} {first[0].get(key)} there, {value} asked for"
        for key, value in first[1].items()
        if first[0].get(key) != value
    )


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Two sweeps in one directory would train the same runs; the lock dies with its process."""
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another sweep is running in {out}") from None
        yield


@contextmanager
def _default_environment(variables: dict[str, str]) -> Iterator[None]:
    """For the processes started inside; what the user has set stays."""
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _train_all(runs: Sequence[RunConfig], directory: Path, workers: int, kernels: str, console: Console) -> None:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(os.getpid(),))
    failures: dict[str, BaseException] = {}
    try:
        pending: dict[Future, RunConfig] = {pool.submit(train, run, directory, kernels): run for run in runs}
        with Live(progress_table(runs, directory), console=console, refresh_per_second=2) as live:
            while pending:
                done, _ = wait(pending, timeout=_REFRESH_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    run = pending.pop(future)
                    if error := future.exception():
                        failures[run.name] = error
                    if not console.is_terminal:  # a log file gets a line a run instead of a table
                        console.print(f"{time.strftime('%H:%M:%S')} {run.name} " + ("failed" if error else "finished"))
                live.update(progress_table(runs, directory))
    finally:
        pool.shutdown(wait=not sys.exc_info()[0], cancel_futures=True)
    if failures:
        name, error = next(iter(failures.items()))
        raise RuntimeError(f"{len(failures)} of {len(runs)} runs failed, the first ({name}) with: {error}") from error


def _start_worker(parent: int) -> None:
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)  # the sweep was killed: a worker must not go on alone; its files are whole at any moment

    threading.Thread(target=watch, daemon=True).start()
