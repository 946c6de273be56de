"""Processes, and the model distributed over them: FSDP2, optionally HSDP, activation checkpointing and compile."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from iha.train.objective import Objective
from iha.train.recipe import Parallel, Recipe

_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Processes:
    """This process among all of the run."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sum of these numbers over all processes."""
        if self.world == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def gathered(self, value: Any) -> list[Any]:
        """The values of all processes, on every process."""
        values = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(values, value)
        return values

    def by_first(self, function: Callable[[], Any]) -> Any:
        """Call `function` on the first process and return its result, or raise its error, on all processes.

        Any error: the others would wait for a result that never comes.
        """
        result, error = None, None
        if self.first:
            try:
                result = function()
            except Exception as raised:
                error = raised
        if self.world > 1:
            shared = [result, error and _portable(error)]
            dist.broadcast_object_list(shared, src=0, device=self.device)
            if not self.first:
                result, error = shared
        if error:
            raise error
        return result


def _portable(error: Exception) -> Exception:
    """An error that other processes can be sent, of the kind by which a command tells the user's errors from ours."""
    if isinstance(error, OSError) and error.strerror:
        return OSError(error.errno, error.strerror, error.filename)
    kind = next((kind for kind in (ValueError, OSError, ImportError, MemoryError) if isinstance(error, kind)), None)
    return kind(str(error)) if kind else RuntimeError(f"{type(error).__name__} in the first process: {error}")


def num_processes() -> int:
    """That torchrun started, or this one alone: known before they connect."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes that torchrun started, or this one alone. A group exists in both cases: there is one code path."""
    world, rank = num_processes(), int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    ours = not dist.is_initialized()
    if ours:
        store = {} if "WORLD_SIZE" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, timeout=_TIMEOUT, **store)  # type: ignore[arg-type]
    try:
        yield Processes(rank, world, device)
    finally:
        if ours:
            dist.destroy_process_group()


def check_layout(recipe: Recipe, world: int) -> None:
    if recipe.data.batch % world:
        raise ValueError(f"data.batch is {recipe.data.batch} sequences, which {world} processes cannot share evenly")
    shards = recipe.parallel.shards
    if shards is not None and world % shards:
        raise ValueError(f"parallel.shards is {shards}, which does not divide {world} processes")


def mesh_of(settings: Parallel, world: int, device: str) -> DeviceMesh | None:
    """How FSDP2 spreads the model; None where it is not needed.

    One process computing in its weights' own precision needs no sharding. Everything else goes through FSDP2: it keeps
    the weights in float32 and casts them to bfloat16 for the products, on one process as on many.
    """
    if world == 1 and settings.precision != "bfloat16":
        return None
    shards = settings.shards or world
    if shards == world:
        return init_device_mesh(device, (world,), mesh_dim_names=("shard",))
    return init_device_mesh(device, (world // shards, shards), mesh_dim_names=("replicate", "shard"))


def parallelise(objective: Objective, settings: Parallel, mesh: DeviceMesh | None) -> Objective:
    """Checkpointing, compile and sharding, in the order that PyTorch asks for."""
    layers = objective.model.model.layers
    if settings.activation_checkpointing:
        objective.model.gradient_checkpointing_enable({"use_reentrant": False})
    if settings.compile:
        for layer in layers:
            layer.compile()
    if mesh is None:
        return objective
    low = settings.precision == "bfloat16"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(objective, mesh=mesh, mp_policy=policy)
    return objective


@contextmanager
def evaluating(objective: Objective) -> Iterator[None]:
    """Without gradients, in evaluation mode. FSDP2 reshards the root in the backward pass, so here it must be told."""
    objective.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        objective.train()
        for module in objective.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
