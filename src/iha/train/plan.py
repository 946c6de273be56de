"""What a recipe costs, before it is run: the real sharded step on fake tensors and a fake process group.

Nothing is allocated or computed; shapes, sharding and the lifetime of every tensor are those of training. The device
mesh is of CPUs, so the attention operators keep the buffers of their CPU versions. A GPU's kernels and allocator may
keep others.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from iha.accounting.cache_bytes import schedule_cache_bytes
from iha.accounting.gpus import GPUS
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.models.configuration import IHAConfig
from iha.models.field_checks import ATTENTIONS
from iha.models.modeling import IHAForCausalLM
from iha.records import Progress, silent
from iha.train import state as training_state
from iha.train.batches import Batch
from iha.train.build import changed_config, model_config
from iha.train.flops import attention_shape, schedule_of, training_flops
from iha.train.objective import Objective
from iha.train.optimise import build_optimiser
from iha.train.parallel import check_layout, mesh_of, parallelise
from iha.train.recipe import Parallel, Recipe
from iha.train.step import gradient
from iha.train.tokenise import SPECIAL, load_tokenizer
from iha.train.typed import override

USABLE = 0.9  # of a GPU's memory: the rest is the context, the communication buffers and the allocator's gaps
_KINDS = {
    "parameters": ("Sharded Param", "Unsharded Param", "All Gather"),
    "gradients": ("Sharded Grad", "Unsharded Grad", "Reduce Scatter"),
    "optimiser": ("OptState",),
    "activations": ("Activation", "Temp", "Inputs", "Buffer"),
}


@dataclass(frozen=True)
class Footprint:
    """Bytes per process at the peak of a step, by kind."""

    parameters: int
    gradients: int
    optimiser: int
    activations: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimiser + self.activations


@dataclass(frozen=True)
class MechanismPlan:
    attention: str
    parameters: int  # of the whole model
    footprint: Footprint
    flops_per_step: int
    ratio_to_global: float  # of the FLOPs
    days: float
    cache_bytes: int | None  # of one sequence of the recipe's context, bfloat16
    remedy: list[str] | None  # overrides that make it fit, tried; None when it fits, empty when none of them does
    remedied: Footprint | None = None

    def fits(self, memory: int) -> bool:
        return self.footprint.total <= USABLE * memory


def plan(
    recipe: Recipe, gpus: int, gpu: str, *, mfu: float = 0.4, attentions: tuple[str, ...] = ATTENTIONS,
    workers: int = 2, progress: Progress = silent,
) -> list[MechanismPlan]:  # fmt: skip
    """A plan of the recipe for each of these mechanisms, on this many GPUs."""
    if gpu not in GPUS:
        raise ValueError(f"gpu must be one of {', '.join(GPUS)}, got {gpu!r}")
    if gpus < 1 or not 0 < mfu <= 1:
        raise ValueError(f"gpus must be at least 1 and mfu in (0, 1]: {gpus}, {mfu}")
    for attention in attentions:
        if attention not in ATTENTIONS:
            raise ValueError(f"attention must be one of {', '.join(ATTENTIONS)}, got {attention!r}")
    check_layout(recipe, gpus)
    vocabulary = vocabulary_of(recipe)
    recipes = [replace(recipe, model=replace(recipe.model, attention=name)) for name in attentions]  # type: ignore[arg-type]
    # A fake process group is global, so every mechanism gets a separate process.
    spawn = multiprocessing.get_context("spawn")
    jobs = min(workers, len(recipes))
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool, progress.task("planning", len(recipes)) as task:
        futures = [pool.submit(_plan_one, each, vocabulary, gpus, gpu, mfu) for each in recipes]
        plans = []
        for future, attention in zip(futures, attentions, strict=True):
            plans.append(future.result())
            task.advance(1, note=attention)
    return plans


def vocabulary_of(recipe: Recipe) -> int:
    """Vocabulary size of the recipe's tokenizer, without a download."""
    tokenizer = recipe.data.tokenizer
    if "vocab_size" in recipe.model.config:
        return int(recipe.model.config["vocab_size"])
    match tokenizer.kind:
        case "bytes":
            return 256 + len(SPECIAL)
        case "train":
            return tokenizer.vocab_size
        case "file":
            return load_tokenizer(tokenizer).size
    raise ValueError("a plan downloads no tokenizer: set model.config.vocab_size")


def footprint(recipe: Recipe, config: IHAConfig, world: int) -> Footprint:
    """Peak memory of one step of rank 0 of `world`.

    Memory grows by the same amount with every repetition of the layer pattern, so the deep model's memory follows from
    two shallow ones. (tests/train/test_plan.py compares with all layers, for every mechanism.)
    """
    layers = config.layer_schedule or []
    period = next(p for p in range(1, len(layers) + 1) if all(a == b for a, b in zip(layers, layers[p:], strict=False)))
    shallow = len(layers) % period + max(2, period)
    if shallow + period >= len(layers):
        return measured_footprint(recipe, config, world)
    low, high = (
        measured_footprint(
            recipe, changed_config(config, num_hidden_layers=depth, layer_schedule=layers[:depth]), world
        )
        for depth in (shallow, shallow + period)
    )
    more = {kind: getattr(high, kind) - getattr(low, kind) for kind in asdict(low)}
    if any(size < 0 for size in more.values()):  # their peaks lie at different moments of the step, so nothing follows
        return measured_footprint(recipe, config, world)
    repeats = (len(layers) - shallow) // period
    return Footprint(**{kind: getattr(low, kind) + repeats * size for kind, size in more.items()})


def measured_footprint(recipe: Recipe, config: IHAConfig, world: int) -> Footprint:
    """By running the step of all layers. No process group may exist yet."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        mesh = mesh_of(recipe.parallel, world, "cpu")
        if mesh is None:
            raise ValueError("a plan is for FSDP2: more than one process, or parallel.precision=bfloat16")
        with FakeTensorMode():
            objective = parallelise(
                Objective(IHAForCausalLM(config), recipe.parallel.loss_chunk),
                replace(recipe.parallel, compile=False),
                mesh,
            )
            _coarsen_query_blocks(objective, recipe.data.context)
            optimiser = build_optimiser(objective.model, recipe.optimiser)
            training_state.initialise(optimiser)
            share = recipe.data.batch // world
            tokens = torch.zeros(share, recipe.data.context, dtype=torch.long)
            # The second micro-batch meets the first one's gradients; more change nothing.
            batch = Batch(tokens, tokens, None).first(2 * recipe.parallel.micro_batch)
            tracker = FSDPMemTracker(objective, optimiser)
            tracker.track_inputs((batch.tokens,))
            with tracker:
                gradient(objective, batch, 1.0, world, recipe.parallel.micro_batch)
                peak = next(iter(tracker.get_tracker_snapshot("peak").values()))
    finally:
        dist.destroy_process_group()
    found = {getattr(kind, "value", kind): size for kind, size in peak.items()}
    return Footprint(**{kind: sum(found.get(name, 0) for name in names) for kind, names in _KINDS.items()})


def _coarsen_query_blocks(objective: Objective, num_tokens: int) -> None:
    """Talking heads use hundreds of small blocks of queries, each slow with fake tensors. Here there are only 32.

    Their logits then take more memory than in training, by less than 1 GiB at 8192 tokens and 20 heads.
    """
    for module in objective.modules():
        if isinstance(module, TalkingHeadsAttention) and num_tokens >= 4096:
            module.chunk = num_tokens // 32


def remedies(recipe: Recipe, gpus: int) -> list[str]:
    """What can be changed without changing the result, cheapest first."""
    settings, steps = recipe.parallel, []
    if settings.loss_chunk is None:
        steps.append("parallel.loss_chunk=2048")
    if min(settings.micro_batch, recipe.data.batch // gpus) > 1:
        steps.append("parallel.micro_batch=1")
    if settings.shards is not None and settings.shards < gpus:
        steps.append("parallel.shards=null")
    if not settings.activation_checkpointing:
        steps.append("parallel.activation_checkpointing=true")
    return steps


def _plan_one(recipe: Recipe, vocabulary: int, gpus: int, gpu: str, mfu: float) -> MechanismPlan:
    peak, memory, _ = GPUS[gpu]
    config = model_config(recipe, vocabulary, end_id=None)
    with torch.device("meta"):
        parameters = IHAForCausalLM(config).num_parameters()
    flops = training_flops(config, recipe.data.context) * recipe.data.batch
    baseline = model_config(replace(recipe, model=replace(recipe.model, attention="global")), vocabulary, end_id=None)
    found = MechanismPlan(
        attention=recipe.model.attention,
        parameters=parameters,
        footprint=footprint(recipe, config, gpus),
        flops_per_step=flops,
        ratio_to_global=flops / (training_flops(baseline, recipe.data.context) * recipe.data.batch),
        days=flops * recipe.schedule.steps / (gpus * peak * mfu) / 86400,
        cache_bytes=schedule_cache_bytes(attention_shape(config), schedule_of(config), recipe.data.context),
        remedy=None,
    )
    return found if found.fits(memory) else _remedied(found, recipe, config, gpus, memory)


def _remedied(found: MechanismPlan, recipe: Recipe, config: IHAConfig, gpus: int, memory: int) -> MechanismPlan:
    """One remedy after the other, until it fits."""
    tried: list[str] = []
    for change in remedies(recipe, gpus):
        tried.append(change)
        settings: dict[str, Any] = {"parallel": asdict(recipe.parallel)}
        override(settings, change)
        recipe = replace(recipe, parallel=Parallel(**settings["parallel"]))
        better = footprint(recipe, config, gpus)
        if better.total <= USABLE * memory:
            return replace(found, remedy=tried, remedied=better)
    return replace(found, remedy=[])
