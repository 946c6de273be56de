"""Processes and layouts, errors that two processes share; tests/train/test_processes.py trains on two and four."""

import multiprocessing
import os
from dataclasses import replace

import pytest
import runs
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from iha.train.build import build_model, model_config
from iha.train.objective import Objective
from iha.train.parallel import Processes, check_layout, evaluating, mesh_of, parallelise, processes
from iha.train.recipe import Data, Parallel, Recipe

ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture
def objective(tmp_path):
    recipe = runs.tiny(tmp_path)
    return Objective(build_model(recipe, model_config(recipe, 262, 256)))


def test_one_process_is_everybody():
    assert ALONE.first
    assert ALONE.sum(1, 2.5) == [1, 2.5]
    assert ALONE.gathered({"a": 1}) == [{"a": 1}]
    assert ALONE.by_first(lambda: 3) == 3
    with pytest.raises(ValueError, match="no room"):
        ALONE.by_first(lambda: int("no room"))


def _call(rank, port, error, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def fail():
        raise error

    with processes() as group:
        try:
            group.by_first(fail)
        except Exception as raised:
            results.put((rank, type(raised), str(raised), group.by_first(lambda: "still together")))


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("no room"), (ValueError, "no room")),
        (OSError(28, "No space left on device", "a/b"), (OSError, "[Errno 28] No space left on device: 'a/b'")),
        (OSError("odd"), (OSError, "odd")),
        (FileExistsError(17, "File exists", "c"), (FileExistsError, "[Errno 17] File exists: 'c'")),
        (ModuleNotFoundError("No module named 'wandb'"), (ImportError, "No module named 'wandb'")),
        (KeyError("k"), (RuntimeError, "KeyError in the first process: 'k'")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_the_first_process_ends_the_call_on_the_second(error, seen):
    context = multiprocessing.get_context("forkserver")
    results, port = context.Queue(), runs._free_port()
    workers = [context.Process(target=_call, args=(rank, port, error, results)) for rank in range(2)]
    for worker in workers:
        worker.start()
    found = {rank: rest for rank, *rest in (results.get(timeout=60) for _ in workers)}
    for worker in workers:
        worker.join()
    assert found == {0: [type(error), str(error), "still together"], 1: [*seen, "still together"]}


def test_a_group_exists_for_one_process_and_is_gone_afterwards():
    with processes() as group:
        assert (group.rank, group.world) == (0, 1)
        assert dist.get_world_size() == 1
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("batch", "shards", "world", "message"),
    [
        (6, None, 4, "data.batch is 6 sequences, which 4 processes cannot share evenly"),
        (8, 3, 4, "parallel.shards is 3, which does not divide 4 processes"),
    ],
)
def test_layouts_that_cannot_be_are_refused(batch, shards, world, message):
    with pytest.raises(ValueError, match=message):
        check_layout(Recipe(data=Data(batch=batch), parallel=Parallel(shards=shards)), world)
    check_layout(Recipe(data=Data(batch=8), parallel=Parallel(shards=2)), 4)


def test_one_process_is_sharded_for_bfloat16_alone():
    assert mesh_of(Parallel(), 1, "cpu") is None
    assert mesh_of(Parallel(precision="float64"), 1, "cpu") is None
    with processes():
        mesh = mesh_of(Parallel(precision="bfloat16"), 1, "cpu")
        assert mesh.mesh_dim_names == ("shard",)
        assert mesh.size() == 1


def test_products_in_bfloat16_weights_and_gradients_in_float32(objective):
    tokens = torch.randint(0, 262, (2, 8))
    wide = objective(tokens, tokens, None).item()
    seen = []
    with processes():
        settings = Parallel(precision="bfloat16")
        parallelise(objective, settings, mesh_of(settings, 1, "cpu"))
        assert all(isinstance(layer, FSDPModule) for layer in objective.model.model.layers)
        objective.model.model.layers[0].mlp.register_forward_hook(lambda _, __, out: seen.append(out.dtype))
        loss = objective(tokens, tokens, None)
        loss.backward()
        assert seen == [torch.bfloat16]
        assert {(p.dtype, p.grad.dtype) for p in objective.parameters()} == {(torch.float32, torch.float32)}
        assert loss.item() == pytest.approx(wide, rel=2e-2)


def test_checkpointed_activations_give_the_same_gradients(objective):
    tokens = torch.randint(0, 262, (2, 8))
    want = torch.autograd.grad(objective(tokens, tokens, None), list(objective.parameters()))
    passes = []
    objective.model.model.layers[0].self_attn.register_forward_hook(lambda *_: passes.append(1))
    parallelise(objective, replace(Parallel(), activation_checkpointing=True), None).train()
    got = torch.autograd.grad(objective(tokens, tokens, None), list(objective.parameters()))
    assert len(passes) == 2  # once more in the backward pass
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_evaluating_ends_in_training_even_after_an_error(objective):
    with evaluating(objective):
        assert not objective.training
        assert not torch.is_grad_enabled()
    with pytest.raises(RuntimeError, match="failed"), evaluating(objective):
        raise RuntimeError("failed")
    assert objective.training
    assert torch.is_grad_enabled()
