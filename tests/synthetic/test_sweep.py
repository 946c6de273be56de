"""A sweep that is killed at any moment and called again ends with the same numbers; bad input is refused before."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from iha.records import read_record
from iha.synthetic.config import SCALES, RunConfig, grid
from iha.synthetic.files import read_run, run_paths
from iha.synthetic.sweep import check, read_runs, run_sweep
from iha.synthetic.tasks import TASKS
from iha.synthetic.trainer import train
from synthetic.runs import TINY, TINY_IHA, numbers

_SCRIPT = """
import sys
from pathlib import Path
from iha.synthetic.config import RunConfig
from iha.synthetic.sweep import run_sweep
from dataclasses import replace
import json
if __name__ == "__main__":
    runs = [RunConfig.from_json(c) for c in json.loads(sys.argv[2])]
    run_sweep(runs, Path(sys.argv[1]), workers=2)
"""


def alive(marker: str) -> list[int]:
    """Processes with this in their command line or environment: the workers carry it in the environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def epochs_on_record(out: Path) -> int:
    return sum(len(read_run(path)["history"]) for path in out.glob("runs/*.json"))


def begin(script: Path, out: Path, runs: list[RunConfig], marker: str) -> subprocess.Popen:
    """A sweep in a process of its own, once its workers train."""
    arguments = [sys.executable, str(script), str(out), json.dumps([run.as_json() for run in runs])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict([marker.split("=")])
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while epochs_on_record(out) == 0:
        assert process.poll() is None, "finished or failed before it could be interrupted"
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_an_interrupt_of_the_main_process_alone_ends_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "sweep.py").write_text(_SCRIPT)
    marker = f"SWEEP_MARK={tmp_path.name}-{os.getpid()}"
    runs = [replace(TINY, epochs=10_000, patience=10_000, seed=seed) for seed in (0, 1)]
    process = begin(tmp_path / "sweep.py", tmp_path / "out", runs, marker)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert not alive(marker)


@pytest.mark.slow
def test_a_dead_worker_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sweep.py").write_text(_SCRIPT)
    marker = f"SWEEP_MARK={tmp_path.name}-{os.getpid()}"
    runs = [replace(TINY, epochs=10_000, patience=10_000)]
    process = begin(tmp_path / "sweep.py", tmp_path / "out", runs, marker)
    workers = [pid for pid in alive(marker) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert (
        f"ChildProcessError: a worker process died, perhaps for lack of memory, while training {TINY.name};" in errors
    )
    assert not alive(marker)


@pytest.mark.slow
def test_killed_sweep_goes_on_and_leaves_no_worker_behind(tmp_path: Path) -> None:
    runs = [replace(TINY, epochs=30, seed=seed) for seed in (0, 1)] + [replace(TINY_IHA, epochs=20)]
    script = tmp_path / "sweep.py"
    script.write_text(_SCRIPT)
    marker = f"SWEEP_MARK={tmp_path.name}-{os.getpid()}"
    arguments = [sys.executable, str(script), str(tmp_path / "out"), json.dumps([run.as_json() for run in runs])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict([marker.split("=")])
    for _ in range(3):  # each time killed in the middle of training: an epoch more than before is on record
        process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = epochs_on_record(tmp_path / "out")
        while epochs_on_record(tmp_path / "out") == before:
            assert process.poll() is None, "finished or failed before it could be killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 10
        while alive(marker) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not alive(marker), "workers outlived their sweep"
    subprocess.run(arguments, env=environment, stdout=subprocess.DEVNULL, check=True)
    records = {record["name"]: record for record in read_runs(tmp_path / "out")}
    (tmp_path / "whole").mkdir()
    for run in runs:
        expected = train(run, tmp_path / "whole")
        assert records[run.name]["finished"]
        for mine, theirs in zip(numbers(records[run.name]), numbers(expected), strict=True):
            assert mine == pytest.approx(theirs, abs=1e-6)  # the number of threads may differ


def test_a_sweep_writes_records_and_summary_and_refuses_another_configuration(tmp_path: Path) -> None:
    out = tmp_path / "out"
    runs = [replace(TINY, epochs=1), replace(TINY_IHA, epochs=1)]
    summary = run_sweep(runs, out, workers=1)
    assert [variant["label"] for variant in summary["variants"]] == ["MHA", "IHA P2"]
    assert read_record(out / "summary.json", "synthetic-summary").results == summary
    assert [record["name"] for record in read_runs(out)] == [run.name for run in runs]
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert run_sweep(runs, out, workers=1) == summary  # nothing is trained again
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == before
    with pytest.raises(ValueError, match=r"another configuration \(batch_size 16 there, 32 asked for\)"):
        run_sweep([replace(run, batch_size=32) for run in runs], out)
    with pytest.raises(ValueError, match=r"another configuration \(patience 10 there, 5 asked for\)"):
        run_sweep([replace(run, patience=5, epochs=2) for run in runs], out)
    with pytest.raises(ValueError, match="2 runs there, 1 asked for"):
        run_sweep(runs[:1], out)


def test_runs_that_pause_at_an_epoch_end_as_if_they_had_not(tmp_path: Path) -> None:
    runs = [replace(TINY, epochs=2), replace(TINY_IHA, epochs=3)]
    out, whole = tmp_path / "out", tmp_path / "whole"
    summary = run_sweep(runs, out, workers=1, pause_at=1)
    assert [(v["epochs"], v["finished"]) for v in summary["variants"]] == [([1], [False])] * 2
    summary = run_sweep(runs, out, workers=1, pause_at=2)
    assert [(v["epochs"], v["finished"]) for v in summary["variants"]] == [([2], [True]), ([2], [False])]
    run_sweep(runs, out, workers=1)
    run_sweep(runs, whole, workers=1)
    assert [numbers(run) for run in read_runs(out)] == [numbers(run) for run in read_runs(whole)]
    with pytest.raises(ValueError, match="pause_at must be at least 1, got 0"):
        run_sweep(runs, tmp_path / "none", pause_at=0)


def test_a_sweep_goes_on_with_more_epochs_and_not_with_fewer(tmp_path: Path) -> None:
    runs = [replace(TINY, epochs=1), replace(TINY_IHA, epochs=1)]
    longer = [replace(run, epochs=2) for run in runs]
    out, whole = tmp_path / "out", tmp_path / "whole"
    run_sweep(runs, out, workers=1)
    run_sweep(longer, out, workers=1)
    run_sweep(longer, whole, workers=1)
    assert [numbers(run) for run in read_runs(out)] == [numbers(run) for run in read_runs(whole)]
    with pytest.raises(ValueError, match=r"another configuration \(epochs 2 there, 1 asked for\)"):
        run_sweep(runs, out)
    run_paths(out / "runs", TINY_IHA)[1].unlink()
    before = (out / "sweep.json").read_bytes()
    with pytest.raises(ValueError, match="has no checkpoint beside it"):  # before the other run goes on
        run_sweep([replace(run, epochs=3) for run in runs], out)
    assert (out / "sweep.json").read_bytes() == before
    assert [len(run["history"]) for run in read_runs(out)] == [2, 2]


def test_threads_of_a_run_change_nothing_but_its_time(tmp_path: Path) -> None:
    run = replace(TINY_IHA, width=32, model="paper", epochs=2)
    one, two = (run_sweep([run], tmp_path / str(n), workers=1, threads=n)["variants"][0] for n in (1, 2))
    assert two["final"]["mean"] == pytest.approx(one["final"]["mean"], abs=0.01)
    losses = [[e["train_loss"] for e in read_runs(tmp_path / str(n))[0]["history"]] for n in (1, 2)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        run_sweep([run], tmp_path / "none", threads=0)


def test_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    bad = {
        "mechanism must be one of": replace(TINY, mechanism="linear"),
        "task must be one of": replace(TINY, task="quaternary"),
        "init must be one of": replace(TINY_IHA, init="zeros"),
        "positions must be one of": replace(TINY, positions="3d"),
        "positions='2d' need tokens on a grid": replace(TINY, task="cpm3", positions="2d"),
        "num_heads must divide the width: 3 heads, width 16": replace(TINY, num_heads=3),
        "epochs must be at least 1, got 0": replace(TINY, epochs=0),
        "learning_rate must be positive": replace(TINY, learning_rate=float("nan")),
        "heads are compared in pairs": replace(TINY, mechanism="differential", num_heads=1),
        "size 3000 .* needs about": replace(TINY, sizes=(3000,)),
    }
    for message, config in bad.items():
        with pytest.raises(ValueError, match=message):
            run_sweep([config], out)
    with pytest.raises(ValueError, match="must differ"):
        run_sweep([TINY, replace(TINY, epochs=4)], out)
    with pytest.raises(ValueError, match="at least one run"):
        run_sweep([], out)
    assert not out.exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="not the directory of a sweep"):
        run_sweep([TINY], tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_fits_every_task(name: str, scale: str) -> None:
    check(grid(name, ("mha", "iha", "talking_heads", "differential"), SCALES[scale]))
