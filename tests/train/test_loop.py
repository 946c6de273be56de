"""The trainer in this process: steps that are not finite, retention, what is logged, evaluations."""

import json
import math

import pytest
import runs
import torch

from iha.models.configuration import IHAConfig
from iha.records import read_record
from iha.train import loop
from iha.train.export import checkpoint_tensors, export
from iha.train.flops import peak_flops, training_flops
from iha.train.loop import Evaluation, train
from iha.train.metrics import read_metrics


@pytest.fixture
def poisoned(monkeypatch):
    """The gradient of these steps (from 0) has a NaN in it."""
    steps = set()
    calls = iter(range(10**6))
    honest = loop.gradient

    def gradient(objective, *arguments):
        loss, norm = honest(objective, *arguments)
        if next(calls) in steps:
            next(objective.parameters()).grad[0, 0] = math.nan
            norm = torch.tensor(math.nan)
        return loss, norm

    monkeypatch.setattr(loop, "gradient", gradient)
    return steps


def test_a_step_that_is_not_finite_stops_the_run(tmp_path, poisoned):
    poisoned.add(3)
    with pytest.raises(ValueError, match=r"step 4: the gradient's norm is nan; optimiser.non_finite=skip"):
        train(runs.tiny(tmp_path), tmp_path / "run")
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())] == ["step-00000002"]


def test_every_step_is_in_training_mode_also_from_loaded_weights(tmp_path, monkeypatch):
    """`from_pretrained` loads for evaluation, in which nothing is dropped and activations are not checkpointed."""
    train(runs.tiny(tmp_path, "schedule.steps=3"), tmp_path / "first")
    export(tmp_path / "first", tmp_path / "hf")
    modes, honest = [], loop.gradient

    def gradient(objective, *arguments):
        modes.append({module.training for module in objective.modules()})
        return honest(objective, *arguments)

    monkeypatch.setattr(loop, "gradient", gradient)
    recipe = runs.tiny(tmp_path, f"model.init_from={tmp_path}/hf", "model.config={}", "schedule.steps=4")
    train(recipe, tmp_path / "second")  # with a validation after step 3
    assert modes == [{True}] * 4


def test_or_is_skipped_and_leaves_no_trace_in_the_weights(tmp_path, poisoned, caplog):
    poisoned.update({2, 3})
    outcome = train(runs.tiny(tmp_path, "optimiser.non_finite=skip"), tmp_path / "run")
    assert (outcome.step, outcome.results["skipped"]) == (6, 2)
    assert "step 3: the gradient's norm is nan; the step is skipped" in caplog.text
    tensors = runs.weights(tmp_path / "run")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    assert float(tensors["optimiser.step"]) == 4
    assert runs.metrics(tmp_path / "run", "gradient_norm")[2] == (3, None)


def test_until_too_many_are(tmp_path, poisoned):
    poisoned.update(range(6))
    recipe = runs.tiny(tmp_path, "optimiser.non_finite=skip", "optimiser.max_skipped=3")
    with pytest.raises(ValueError, match=r"step 3: .*: 3 such steps in a row, the run has diverged"):
        train(recipe, tmp_path / "run")


def test_retention_and_what_a_run_directory_holds(tmp_path):
    recipe = runs.tiny(
        tmp_path, "schedule.steps=9", "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.keep_every=3",
        "logging.tensorboard=true",
    )  # fmt: skip
    seen = []

    def measure(model, step):
        assert not model.training
        assert not torch.is_grad_enabled()
        seen.append(step)
        return {"twice": 2.0 * step}

    outcome = train(recipe, tmp_path / "run", command="iha train x", evaluations=[Evaluation("mine", 4, measure)])
    names = [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())]
    assert names == [f"step-{step:08d}" for step in (3, 6, 8, 9)]
    assert seen == [4, 8, 9]
    assert outcome.results["mine"] == {"twice": 18.0}
    assert set(outcome.results["validation"]) == {"pairs", "hops"}
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    losses = [record for record in records if "loss" in record]
    assert [record["step"] for record in losses] == list(range(1, 10))
    flops_per_token = training_flops(IHAConfig.from_pretrained(tmp_path / "run"), 32) / 32
    for entry in losses:  # one process: FLOPs per second over what the device can do
        assert entry["mfu"] == pytest.approx(entry["tokens_per_second"] * flops_per_token / peak_flops())
    assert [record["mine/twice"] for record in records if "mine/twice" in record] == [8.0, 16.0, 18.0]
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    record = read_record(tmp_path / "run" / "run.json", "train-run")
    assert record.command == "iha train x"
    assert record.results["tokens"] == 9 * 4 * 32
    assert json.loads((tmp_path / "run" / "config.json").read_text())["attention"] == "iha"


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_frozen_backbone_stays_bit_for_bit(tmp_path, world):
    recipe = runs.tiny(tmp_path, "optimiser.train=mixing", "checkpoint.keep=3")
    assert runs.finish(runs.start(recipe, tmp_path / "run", world)) == [0] * world
    early, late = (checkpoint_tensors(tmp_path / "run" / "checkpoints" / f"step-{s:08d}") for s in (2, 6))
    for name in late:
        if name.startswith("model."):
            is_mixing = name.rpartition(".")[2] in ("alpha_q", "alpha_k", "alpha_v", "collapse")
            assert torch.equal(early[name], late[name]) != is_mixing, name
            assert (f"optimiser.exp_avg.{name.removeprefix('model.')}" in late) == is_mixing


def test_a_model_without_mixing_cannot_be_frozen_but_for_it(tmp_path):
    with pytest.raises(ValueError, match="has no mixing parameters to train"):
        train(runs.tiny(tmp_path, "optimiser.train=mixing", "model.attention=global"), tmp_path / "run")


def test_sharded_weights_do_not_grow_and_nothing_is_written(tmp_path):
    recipe = runs.tiny(tmp_path, *runs.GROWING, "parallel.precision=bfloat16")
    with pytest.raises(ValueError, match=r"growth\.every is 2, but weights that FSDP2 has sharded cannot grow"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_compiled_layers_train_alike(tmp_path):
    for name, override in (("eager", "false"), ("compiled", "true")):
        train(runs.tiny(tmp_path, f"parallel.compile={override}", "schedule.steps=3"), tmp_path / name)
    eager, compiled = (runs.metrics(tmp_path / name, "loss") for name in ("eager", "compiled"))
    assert [loss for _, loss in compiled] == pytest.approx([loss for _, loss in eager], rel=1e-4)
