"""Many runs, in worker processes. After a kill at any moment, the same call resumes.

One thread per worker by default: the runs are small, and two runs in parallel do more than one run on two threads. More
are for the last run of a sweep, where a core would be idle: the state kernels share their heads.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from iha.ops.products import choose_products
from iha.records import Progress, Record, Task, locked, output_directory, remove_leftovers, silent, write_record
from iha.synthetic import memory
from iha.synthetic.config import RunConfig
from iha.synthetic.files import PLAN, RUNS, SUMMARY, SUMMARY_KIND, Run, read_plan, read_run, run_paths, write_plan
from iha.synthetic.statistics import summarise
from iha.synthetic.trainer import build_model, earlier_run, train

_REFRESH_SECONDS = 1.0
# A step allocates hundreds of megabytes and frees them. By default glibc gives such blocks back to the system, and
# fresh pages cost more than the arithmetic on them: up to a third of the time of a step. Read when a process starts.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def run_sweep(
    runs: Sequence[RunConfig],
    out: Path,
    *,
    workers: int = 0,
    threads: int = 1,  # of each worker
    kernels: str = "auto",
    pause_at: int | None = None,
    command: str = "",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Trains what is not trained yet and returns the summary, which is in `out` as JSON with every run's record.

    With `pause_at` every run stops after that epoch for now, so that all can be compared there before any goes on.
    With more epochs than in an earlier call, runs that ended at their limit go on. Refused before anything is written:
    configurations that cannot run here, and a directory with other contents.
    """
    workers = workers or min(len(runs), os.cpu_count() or 1)
    if workers < 1:
        raise ValueError(f"a sweep needs at least one run and one worker, got {len(runs)} runs and {workers} workers")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if pause_at is not None and pause_at < 1:
        raise ValueError(f"pause_at must be at least 1, got {pause_at}")
    check(runs)
    _check_directory(runs, out)
    directory = output_directory(out / RUNS)
    with locked(out):
        remove_leftovers(out)
        remove_leftovers(directory)
        if not (out / PLAN).exists() or read_plan(out)[0] != list(runs):
            write_plan(out, list(runs), command)
        with _default_environment(ALLOCATOR):
            _train_all(runs, directory, workers, threads, (kernels, command, pause_at), progress)
        summary = summarise(read_runs(out))
        record = Record.new(SUMMARY_KIND, command=command, config={"runs": [run.as_json() for run in runs]})
        write_record(out / SUMMARY, record.finished(summary))
    return summary


def read_runs(out: Path) -> list[Run]:
    """Records of all runs that have finished an epoch, in the sweep's order."""
    paths = [run_paths(out / RUNS, config)[0] for config in read_plan(out)[0]]
    found = [read_run(path) for path in paths if path.exists()]
    return [run for run in found if run["history"]]


def check(runs: Sequence[RunConfig]) -> None:
    """Raise every foreseeable error before the first step."""
    names = [run.name for run in runs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"runs of one sweep must differ in what their name shows; these do not: {sorted(twice)}")
    for run in runs:
        run.check()
        memory.check_memory(run)
        with torch.device("meta"):
            build_model(run)  # raises for head counts that the mechanism does not support


def _check_directory(runs: Sequence[RunConfig], out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is not a directory")
    if not out.exists() or not any(path.name != ".lock" for path in out.iterdir()):
        return
    if not (out / PLAN).exists():
        raise ValueError(f"{out} is not empty and not the directory of a sweep: name another --out")
    if difference := _difference(read_plan(out)[0], runs):
        raise ValueError(f"{out} holds the results of another configuration ({difference}): name another --out")
    for run in runs:
        earlier_run(run, out / RUNS)


def _difference(found: Sequence[RunConfig], wanted: Sequence[RunConfig]) -> str:
    """What keeps a sweep from going on; empty when nothing does. More epochs do not."""
    if len(found) != len(wanted):
        return f"{len(found)} runs there, {len(wanted)} asked for"
    for a, b in zip(found, wanted, strict=True):
        if not b.continues(a):
            before, now = replace(a, epochs=max(a.epochs, b.epochs)).as_json(), b.as_json()
            return ", ".join(
                f"{key} {before[key]} there, {now[key]} asked for" for key in now if before[key] != now[key]
            )
    return ""


@contextmanager
def _default_environment(variables: dict[str, str]) -> Iterator[None]:
    """Set for the processes started inside; values set by the user are kept."""
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _train_all(
    runs: Sequence[RunConfig], directory: Path, workers: int, threads: int, how: tuple[Any, ...], progress: Progress
) -> None:
    """`how`: the further arguments of `train`."""
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(os.getpid(), threads))
    failures: dict[str, BaseException] = {}
    try:
        pending: dict[Future, RunConfig] = {pool.submit(train, run, directory, *how): run for run in runs}
        with progress.task("runs", total=len(runs)) as all_runs, _Bars(directory, progress) as shown:
            while pending:
                done, _ = wait(pending, timeout=_REFRESH_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    run = pending.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        raise ChildProcessError(_dead(directory, [run, *pending.values()])) from error
                    if error:
                        failures[run.name] = error
                    all_runs.advance(1, f"{run.name} " + ("failed" if error else "finished"))
                shown.update(list(pending.values()))
        pool.shutdown()
    except BaseException:
        # An interrupt sent by `kill` reaches only this process: the workers would continue and be waited for.
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    if failures:
        name, error = next(iter(failures.items()))
        kind = ValueError if isinstance(error, ValueError | OSError | MemoryError) else RuntimeError
        raise kind(f"{len(failures)} of {len(runs)} runs failed, the first ({name}) with: {error}") from error


def _dead(directory: Path, unfinished: list[RunConfig]) -> str:
    begun = [run.name for run in unfinished if run_paths(directory, run)[0].exists()]
    return (
        f"a worker process died, perhaps for lack of memory, while training {' or '.join(begun) or 'its first run'}; "
        "the same command goes on where it was"
    )


class _Bars:
    """One progress bar per active run, read from its file: the state that a rerun would find."""

    def __init__(self, directory: Path, progress: Progress) -> None:
        self.directory, self.progress = directory, progress
        self.open: dict[RunConfig, tuple[ExitStack, Task, int]] = {}

    def __enter__(self) -> "_Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self.update([])

    def update(self, unfinished: list[RunConfig]) -> None:
        for config in set(self.open) - set(unfinished):
            self.open.pop(config)[0].close()
        for config in unfinished:
            path = run_paths(self.directory, config)[0]
            if path.exists():
                self._show(config, read_run(path))

    def _show(self, config: RunConfig, run: Run) -> None:
        steps = run["progress"]["steps"]
        done = run["progress"]["epoch"] * steps + run["progress"]["step"]
        if config not in self.open:
            stack = ExitStack()
            task = stack.enter_context(self.progress.task(config.name, total=config.epochs * steps, done=done))
            self.open[config] = stack, task, done
        stack, task, before = self.open[config]
        last = run["history"][-1] if run["history"] else None
        note = f"epoch {last['epoch']}: validation {100 * last['validation']:.1f}" if last else "epoch 1"
        task.advance(done - before, note)
        self.open[config] = stack, task, done


def _start_worker(parent: int, threads: int) -> None:
    torch.set_num_threads(threads)
    choose_products()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)  # the sweep was killed: a worker must not continue alone; its files are complete at any moment

    threading.Thread(target=watch, daemon=True).start()
