"""A sweep that is killed at any moment and called again ends with the same numbers; bad input is refused before."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from iha.records import read_record, write_json
from iha.synthetic import files, memory, trainer
from iha.synthetic.config import SCALES, RunConfig, Scale, choose_scale, grid
from iha.synthetic.files import read_run
from iha.synthetic.sweep import check, read_runs, run_sweep
from iha.synthetic.tasks import TASKS
from iha.synthetic.trainer import Trainer, train

TINY = RunConfig(
    "binary", "mha", (3, 4), train_examples=96, validation_examples=32, test_examples=32, width=16, num_heads=2,
    num_pseudo_heads=1, init="", batch_size=16, epochs=3, patience=10,
)  # fmt: skip
TINY_IHA = replace(TINY, mechanism="iha", num_pseudo_heads=2, init="one_hot")


def numbers(record: dict[str, Any]) -> list[dict[str, float]]:
    """The history without what the clock says."""
    return [{k: v for k, v in entry.items() if not k.endswith("seconds")} for entry in record["history"]]


class KilledError(Exception):
    pass


@pytest.mark.parametrize("config", [TINY, TINY_IHA], ids=["mha", "iha"])
def test_resumed_at_any_step_a_run_ends_with_the_same_numbers(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    expected = train(config, whole)
    assert len(expected["history"]) == 3
    assert expected["finished"]

    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", -1.0)  # after every step
    steps = 0
    save_state = files.save_state

    def save_then_die(path: Path, state: dict[str, Any]) -> None:
        nonlocal steps
        save_state(path, state)
        steps += 1
        raise KilledError

    monkeypatch.setattr(files, "save_state", save_then_die)
    while True:
        try:
            record = train(config, broken)
        except KilledError:
            continue
        break
    assert steps >= 3 * 6  # every step of every epoch was the last one once
    assert numbers(record) == numbers(expected)
    assert record["best"] == max(record["history"], key=lambda entry: entry["validation"])
    assert not list(broken.glob("*.pt"))


def test_a_checkpoint_of_another_run_is_refused() -> None:
    state = Trainer(TINY).state()
    with pytest.raises(ValueError, match="another run"):
        Trainer(replace(TINY, seed=1)).load(state)


def test_checkpoints_run_no_code(tmp_path: Path) -> None:
    torch.save({"model": Path("somewhere")}, tmp_path / "bad.pt")  # an object: needs unpickling
    with pytest.raises(ValueError, match=r"bad\.pt is not a readable checkpoint"):
        files.load_state(tmp_path / "bad.pt")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"not a checkpoint"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{TINY.name}.pt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"{TINY.name}\.pt is not a readable checkpoint .*delete it"):
        train(TINY, tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"config": 3, "history": []}', '{"schema": 1, "kind": "other"}'])
def test_a_damaged_record_or_plan_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / f"{TINY.name}.json").write_text(content)
    with pytest.raises(ValueError, match=rf"{TINY.name}\.json"):
        train(TINY, tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sweep.json").write_text(content)
    with pytest.raises(ValueError, match=r"sweep\.json"):
        run_sweep([TINY], tmp_path / "out")


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=rf"cannot write .*{TINY.name}\.pt: No space left"):
        train(replace(TINY, epochs=1), tmp_path)


def test_a_run_of_earlier_code_goes_on(tmp_path: Path) -> None:
    """Files from before the common envelope, when multi-head attention was called mha."""
    config = replace(TINY, epochs=2)
    (tmp_path / "whole").mkdir()
    expected = train(config, tmp_path / "whole")
    run = Trainer(config)
    run.run_epoch(lambda: None)
    old = {k: v for k, v in config.as_json().items() if k not in ("model", "norm", "weight_decay")}
    old["mechanism"] = "mha"
    name = config.name.replace("multihead", "mha")
    files.save_state(tmp_path / f"{name}.pt", run.state() | {"config": old})
    write_json(tmp_path / f"{name}.json", run.results() | {"config": old, "machine": {}})
    record = train(config, tmp_path)
    assert numbers(record) == numbers(expected)
    assert [path.name for path in tmp_path.glob("*.json")] == [f"{name}.json"]


def test_early_stopping_waits_for_patience() -> None:
    run = Trainer(replace(TINY, patience=2, epochs=100))
    for score in (0.5, 0.7, 0.6):
        run.history.append({"validation": score})
        run.epoch += 1
        assert not run.finished
    run.history.append({"validation": 0.7})  # no better than the best
    run.epoch += 1
    assert run.finished
    assert run.best_epoch == 1


def test_the_same_seed_gives_every_mechanism_the_same_surroundings() -> None:
    a, b = trainer.build_model(TINY), trainer.build_model(TINY_IHA)
    for name, parameter in a.named_parameters():
        if not name.startswith("attention."):
            assert torch.equal(parameter, b.get_parameter(name))


def test_alpha_and_r_have_their_own_learning_rate() -> None:
    optimiser = Trainer(replace(TINY_IHA, mixing_rate=10.0, learning_rate=1e-3)).optimiser
    assert [group["lr"] for group in optimiser.param_groups] == [1e-3, 1e-2]
    assert [tuple(p.shape) for p in optimiser.param_groups[1]["params"]] == [(2, 2, 2)] * 3 + [(2, 2)]


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
    with pytest.raises(ValueError, match="2 runs there, 1 asked for"):
        run_sweep(runs[:1], out)


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


def test_the_paper_scale_is_the_paper() -> None:
    runs = grid("binary", ("mha", "iha", "simplicial"), SCALES["paper"])
    assert len(runs) == 3 * 2 * 3
    for run in runs:
        assert run.sizes == (6, 7, 8, 9, 10)
        assert (run.train_examples, run.validation_examples, run.test_examples) == (40_000, 5_000, 5_000)
        assert (run.num_heads, run.patience, run.positions) == (8, 10, "1d")
        assert run.num_pseudo_heads == (8 if run.mechanism == "iha" else 1)
    assert {run.learning_rate for run in runs} == {1e-3, 1e-4}
    assert {run.sizes for run in grid("ternary", ("mha",), SCALES["paper"])} == {(5, 6, 7, 8)}
    check(runs)


def test_grid_multiplies_only_what_applies() -> None:
    scale = Scale(seeds=(0,), learning_rates=(1e-3,), heads=(2, 4))
    runs = grid("binary", ("mha", "iha"), scale, inits=("one_hot", "random"), pseudo_heads=(1, 8))
    assert sum(run.mechanism == "multihead" for run in runs) == 2
    assert sum(run.mechanism == "iha" for run in runs) == 2 * 2 * 2
    assert {run.num_pseudo_heads for run in grid("binary", ("iha",), scale)} == {2, 4}  # P = H
    with pytest.raises(ValueError, match="no size of task 'binary' is at most 3"):
        grid("binary", ("mha",), choose_scale("quick", max_size=3))
    assert grid("binary", ("mha",), choose_scale("quick", sizes=(3, 12)))[0].sizes == (3, 12)
    assert grid("binary", ("mha",), choose_scale("quick", max_size=8))[0].sizes == (6, 7, 8)


def test_a_grid_crosses_every_choice_that_the_paper_leaves_open() -> None:
    scale = choose_scale("quick", widths=(16, 32), batch_sizes=(16, 64), heads=(1, 2), seeds=(0, 1))
    runs = grid("binary", ("mha", "iha"), scale, inits=("one_hot", "random"), positions=("1d", "2d"))
    assert len(runs) == len(set(runs)) == len({run.name for run in runs}) == 2 * 2 * 2 * 2 * 2 * (1 + 2)
    assert {(run.width, run.batch_size) for run in runs} == {(16, 16), (16, 64), (32, 16), (32, 64)}
    assert all(run.num_pseudo_heads == (run.num_heads if run.mechanism == "iha" else 1) for run in runs)
    check(runs)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_fits_every_task(name: str, scale: str) -> None:
    check(grid(name, ("mha", "iha", "talking_heads", "differential"), SCALES[scale]))


def test_memory_grows_with_what_it_should() -> None:
    base = memory.memory_needed(TINY)
    assert memory.memory_needed(replace(TINY, batch_size=64)) > base
    assert memory.memory_needed(replace(TINY_IHA, num_pseudo_heads=8)) > memory.memory_needed(TINY_IHA) > base
    assert memory.memory_needed(replace(TINY, sizes=(6,))) > base
