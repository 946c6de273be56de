"""Plans: what the tracker says of fake tensors is what real processes allocate; the arithmetic around it."""

import multiprocessing
from dataclasses import replace

import pytest

from iha.models.field_checks import ATTENTIONS
from iha.train import plan as planning
from iha.train.flops import training_flops
from iha.train.plan import Footprint, MechanismPlan, footprint, measured_footprint, plan, remedies, vocabulary_of
from iha.train.recipe import Data, Model, Parallel, Recipe, Source, Tokenizer

CONFIG = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4,
          "num_pseudo_heads": 2, "global_every": 2, "vocab_size": 512}  # fmt: skip
SMALL = Recipe(model=Model(config=CONFIG), data=Data(context=256, batch=4), parallel=Parallel(micro_batch=2))


def _config(recipe):
    from iha.train.build import model_config

    return model_config(recipe, 512, None)


def _real_step(rank, port, recipe, results):
    """One step of a real process of two: bytes of its parameters and moments, and the peak on top of them."""
    import os

    import torch

    from iha.bench.measure import allocated
    from iha.train import state
    from iha.train.batches import Batch
    from iha.train.build import build_model
    from iha.train.objective import Objective
    from iha.train.optimise import build_optimiser
    from iha.train.parallel import mesh_of, parallelise, processes
    from iha.train.step import gradient

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with processes():
        objective = Objective(build_model(recipe, _config(recipe)), recipe.parallel.loss_chunk)
        parallelise(objective, recipe.parallel, mesh_of(recipe.parallel, 2, "cpu"))
        optimiser = build_optimiser(objective.model, recipe.optimiser)
        state.initialise(optimiser)
        tokens = torch.zeros(2, recipe.data.context, dtype=torch.long)
        batch = Batch(tokens, tokens, None)

        def step():
            gradient(objective, batch, 1.0, 2, recipe.parallel.micro_batch)

        step()  # FSDP2 sets itself up in the first
        optimiser.zero_grad(set_to_none=True)
        held = sum(p.to_local().nbytes for p in objective.parameters()) * 3
        results.put((rank, held + allocated(step).peak))


def _in_a_process(function, *arguments):
    """A fake process group is global: it gets a process of its own."""
    context = multiprocessing.get_context("forkserver")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_tracker_agrees_with_two_real_processes(checkpointing):
    from runs import _free_port

    recipe = replace(SMALL, parallel=Parallel(micro_batch=2, activation_checkpointing=checkpointing))
    context = multiprocessing.get_context("forkserver")
    results, port = context.Queue(), _free_port()
    workers = [context.Process(target=_real_step, args=(rank, port, recipe, results)) for rank in range(2)]
    for worker in workers:
        worker.start()
    real = dict(results.get(timeout=300) for _ in workers)
    planned = _in_a_process(measured_footprint, recipe, _config(recipe), 2)
    assert planned.total == pytest.approx(real[0], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_two_shallow_models_tell_the_memory_of_a_deep_one(attention):
    recipe = replace(SMALL, model=Model(attention=attention, config=CONFIG))
    planned, exact = (_in_a_process(way, recipe, _config(recipe), 4) for way in (footprint, measured_footprint))
    assert planned.total == pytest.approx(exact.total, rel=0.02)


def test_peaks_at_different_moments_are_not_extrapolated(monkeypatch):
    """As with large untied embeddings: the shallower model peaks while they are gathered, the deeper one later."""
    measured = {2: Footprint(900, 0, 10, 50), 4: Footprint(300, 40, 15, 400), 8: Footprint(400, 50, 20, 500)}

    def at_depth(recipe, config, world):
        return measured[config.num_hidden_layers]

    monkeypatch.setattr(planning, "measured_footprint", at_depth)
    assert footprint(SMALL, _config(SMALL), 4) == measured[8]


def test_days_follow_from_flops_and_what_does_not_fit_is_said():
    recipe = replace(SMALL, data=Data(context=256, batch=4), model=Model(attention="global", config=CONFIG))
    (found,) = plan(recipe, 2, "h200", mfu=0.5, attentions=("global",), workers=1)
    assert found.flops_per_step == 4 * training_flops(_config(recipe), 256)
    assert found.days == pytest.approx(found.flops_per_step * 1000 / (2 * 989e12 * 0.5) / 86400)
    assert found.ratio_to_global == 1.0
    assert found.fits(141 * 10**9)
    assert found.remedy is None
    assert not found.fits(found.footprint.total)
    # Keys and values of 8 layers of 4 heads of 16, 256 tokens, two bytes each.
    assert found.cache_bytes == 2 * 8 * 4 * 16 * 256 * 2


def test_remedies_change_how_not_what():
    assert remedies(SMALL, 1) == [
        "parallel.loss_chunk=2048", "parallel.micro_batch=1", "parallel.activation_checkpointing=true",
    ]  # fmt: skip
    assert remedies(replace(SMALL, parallel=Parallel(1, shards=2, loss_chunk=1, activation_checkpointing=True)), 4) == [
        "parallel.shards=null"
    ]


def test_a_footprint_is_the_sum_of_its_kinds():
    found = Footprint(1, 2, 3, 4)
    assert found.total == 10
    assert MechanismPlan("iha", 1, found, 1, 1.0, 1.0, 1, None).fits(12)
    assert not MechanismPlan("iha", 1, found, 1, 1.0, 1.0, 1, None).fits(11)


def test_vocabularies_are_known_without_a_download():
    source = [Source("s", "stdlib")]
    assert vocabulary_of(Recipe(data=Data(source, Tokenizer("bytes")))) == 262
    assert vocabulary_of(Recipe(data=Data(source, Tokenizer("train", vocab_size=1000)))) == 1000
    with pytest.raises(ValueError, match=r"set model\.config\.vocab_size"):
        vocabulary_of(Recipe(data=Data(source, Tokenizer("hub", name="a/b"))))


@pytest.mark.parametrize(("options", "message"), [((3, "h200"), "data.batch is 4"), ((2, "z1"), "gpu must be one of")])
def test_impossible_plans_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plan(SMALL, *options)
