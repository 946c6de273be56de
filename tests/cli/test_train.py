"""`iha prepare`, `train`, `export`, `plan` from the command line; torchrun recovers from a killed worker."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from iha.cli.main import app

TINY = """
model:
  config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, global_every: 2}
data: {context: 32, batch: 4, validation: 0.2, sources: [{name: hops, kind: generated, generator: hops, count: 40}]}
schedule: {steps: 4, warmup: 1}
checkpoint: {every: 2}
logging: {every: 1}
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    return str(tmp_path / "tiny.yaml")


def iha(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


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
        (["prepare", "{recipe}"], "data.directory is not set"),
        (["export", "{tmp}"], "not the directory of a training run"),
        (["plan", "{recipe}", "--gpu", "abacus", "--gpus", "2"], "gpu must be one of a100"),
        (["plan", "{recipe}", "--gpus", "3"], "data.batch is 4 sequences, which 3 processes cannot share evenly"),
        (["plan", "{recipe}", "--gpus", "2", "--mechanisms", "lstm"], "attention must be one of"),
    ],
)
def test_mistakes_are_told_in_one_line(recipe, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    result = iha(*[word.format(recipe=recipe, tmp=tmp_path) for word in words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


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
