"""`iha train` from the command line, from a recipe to text; torchrun recovers from a killed worker."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cli.calls import assert_refused, iha


def test_from_a_recipe_to_text(recipe, tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    prepared = iha("prepare", recipe, "--out", data, "--workers", 1)
    assert prepared.exit_code == 0, prepared.output
    assert "hops: train" in prepared.output
    trained = iha("train", recipe, f"data.directory={data}", "--out", run)
    assert trained.exit_code == 0, trained.output
    assert "finished at step 4" in trained.output
    assert "held out: hops" in trained.output
    record = json.loads((run / "run.json").read_text())
    assert record["command"].startswith("iha train")
    assert (run / "loss.svg").read_text().startswith("<?xml")
    assert not (run / "data").exists()
    exported = iha("export", run, "--out", tmp_path / "hf")
    assert exported.exit_code == 0, exported.output
    written = iha("generate", tmp_path / "hf", "The boss", "--max-new-tokens", 3, "--out", tmp_path / "g")
    assert written.exit_code == 0, written.output
    again = iha("train", recipe, f"data.directory={data}", "--out", run)
    assert "finished at step 4" in again.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "{recipe}", "schedule.stepz=3"], "schedule.stepz: no such key"),
        (["train", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_mistakes_are_told_in_one_line(recipe, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert_refused(iha(*[word.format(recipe=recipe) for word in words]), message)


@pytest.mark.slow
def test_torchrun_restarts_after_a_killed_worker(recipe, tmp_path):
    run = tmp_path / "run"
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    words += ["-m", "iha", "train", recipe, "schedule.steps=60", "checkpoint.every=5", "--out", str(run)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    launcher = subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 400
    while not list((run / "checkpoints").glob("step-*")):
        assert time.monotonic() < until
        assert launcher.poll() is None, launcher.stderr.read()
        time.sleep(0.05)
    workers = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    _, said = launcher.communicate(timeout=400)
    assert launcher.returncode == 0, said
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines() if "loss" in line]
    assert steps == sorted(steps)
    assert steps[-1] == 60
