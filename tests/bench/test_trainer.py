"""`iha bench trainer`: it measures what it says. Speed itself is not a test."""

import subprocess
import sys

import pytest
import torch

from iha.bench.trainer import Settings, _Turns, measure_loader, measure_speed, own_bytes, processor_seconds
from iha.train.loop import Evaluation, train
from iha.train.recipe import read_recipe

TINY = """
model:
  config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, global_every: 2}
data: {context: 32, batch: 4, sources: [{name: hops, kind: generated, generator: hops, count: 40}]}
"""


def test_trainer_and_bare_loop_take_turns(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    found = measure_speed(Settings(str(tmp_path / "tiny.yaml"), steps=12))
    assert found["steps"] == 11  # the first of each warms up
    speed = found["tokens_per_second"]
    assert found["ratio"] == pytest.approx(speed["trainer"] / speed["bare"])
    assert (found["checkpoint_every"], found["checkpoints"]) == (6, 1)  # the recipe's 500 would leave them out


def test_the_bare_loop_trains_the_same_model_on_the_same_tokens(tmp_path):
    """Then its weights end as the trainer's, bit for bit: no side has less to do."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    steady = ["schedule.warmup=0", "schedule.final=1"]  # the bare loop has no schedule
    recipe = read_recipe(tmp_path / "tiny.yaml", ["schedule.steps=3", "parallel.micro_batch=2", *steady])
    turns = _Turns(recipe, tmp_path / "run")
    ends = []

    def after_step(model, step):
        turns.after_step(model, step)
        ends.append(
            all(torch.equal(a, b) for a, b in zip(model.parameters(), turns.objective.parameters(), strict=True))
        )
        return {}

    train(recipe, tmp_path / "run", evaluations=[Evaluation("bare", 1, after_step)])
    assert ends == [True] * 3
    assert any(batch.documents is not None for batch in turns.batches)
    assert len(turns.trainer) == len(turns.bare) == 3


def test_the_loaders_memory_does_not_grow_with_the_corpus():
    """From 1 MB to 64 MB: less than 8 MB more, wherever the batches come from."""
    small, large = (measure_loader(size, batches=50)["grown_bytes"] for size in (1, 64))
    assert large - small < 8 << 20
    held = bytearray(32 << 20)
    held[::4096] = b"x" * len(held[::4096])  # the meter itself sees memory that is taken
    assert own_bytes() > 32 << 20


def test_processor_seconds_are_those_of_a_process_and_its_ended_children():
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}]); print(); input()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 0.45 < processor_seconds(process.pid) < 2
        process.stdin.close()


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 12, got 3"):
        Settings("r.yaml", steps=3)
