"""Runs stages, each in a separate process. Finished stages are not repeated; a failed one does not stop the rest."""

import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Literal

from iha.records import Progress, Record, Task, locked, output_directory, read_record, silent, write_record
from iha.reproduce.stage import Stage

KIND = "reproduce-stage"
UNEXPECTED = 1  # exit status of a command that found an unexpected result
State = Literal["done", "done before", "unexpected", "failed", "skipped"]
_TICK = 0.5  # seconds between checks of a running stage


@dataclass(frozen=True)
class Outcome:
    stage: Stage
    state: State
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of its processes: what it takes on a quiet machine, however busy this one is
    detail: str = ""  # the last line of the log of a failed stage

    @property
    def good(self) -> bool:
        return self.state in ("done", "done before")


def run_stages(stages: Sequence[Stage], out: Path, *, command: str, progress: Progress = silent) -> list[Outcome]:
    """In order. The report, the last stage, always runs: it shows what is missing."""
    logs = output_directory(out / "logs")
    outcomes: dict[str, Outcome] = {}
    with (
        _ended_by_sigterm(),
        locked(out),
        progress.task("reproduce", total=sum(stage.minutes for stage in stages)) as overview,
    ):
        for number, stage in enumerate(stages, 1):
            missing = [name for name in stage.needs if not outcomes[name].good]
            if missing:
                outcomes[stage.name] = Outcome(stage, "skipped", detail=f"it needs {', '.join(missing)}")
            else:
                with progress.task(f"{number}/{len(stages)} {stage.title}", total=stage.minutes) as task:
                    outcomes[stage.name] = _run(stage, logs, command, task)
            overview.advance(stage.minutes, note=f"{stage.name}: {outcomes[stage.name].state}")
    return list(outcomes.values())


def _run(stage: Stage, logs: Path, command: str, task: Task) -> Outcome:
    marker, log = logs / f"{stage.name}.json", logs / f"{stage.name}.log"
    if stage.name != "report" and marker.exists():
        record = read_record(marker, KIND)
        if record.config["command"] == stage.command:
            state: State = "unexpected" if record.results["status"] else "done before"
            return Outcome(stage, state, record.seconds, record.results["cpu_seconds"])
    record = Record.new(KIND, command=command, config={"command": stage.command})
    started, cpu_before = time.monotonic(), _cpu_of_ended_processes()
    with log.open("wb") as file:
        process = Popen(stage.argv, stdin=DEVNULL, stdout=file, stderr=file)
        try:
            while process.poll() is None:
                time.sleep(_TICK)
                task.advance(_TICK / 60, note=_last_line(log))
        except BaseException:
            process.terminate()  # commands save what they have and end
            late = threading.Timer(30, process.kill)
            late.start()
            process.wait()
            late.cancel()
            raise
    seconds, cpu = time.monotonic() - started, round(_cpu_of_ended_processes() - cpu_before, 2)
    if process.returncode in (0, UNEXPECTED):
        write_record(marker, record.finished({"status": process.returncode, "cpu_seconds": cpu}))
        return Outcome(stage, "unexpected" if process.returncode else "done", seconds, cpu, _last_line(log))
    return Outcome(stage, "failed", seconds, cpu, f"exit status {process.returncode}: {_last_line(log)}")


def _cpu_of_ended_processes() -> float:
    """Seconds of all processes that this one has started and seen to end, and of those that they started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends this process through its `except` clauses, so that the running stage is ended too."""

    def end(*_: object) -> None:
        raise SystemExit(143)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:100] if lines else ""
