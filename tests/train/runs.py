"""Training runs of a tiny model in processes of their own, forked from a server that has imported everything."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from pathlib import Path

from iha.train.recipe import Recipe, read_recipe

TINY = """
name: tiny
model:
  config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, num_pseudo_heads: 2,
           global_every: 2, gated_mlp: false}
data: {context: 32, batch: 4, validation: 0.2, sources: [{name: pairs, kind: generated, generator: pairs, count: 40},
                                                         {name: hops, kind: generated, generator: hops, count: 40}]}
schedule: {steps: 6, warmup: 2}
optimiser: {learning_rate: 1e-2}
checkpoint: {every: 2, keep: 2}
parallel: {micro_batch: 2}
validation: {every: 3, sequences: 5}
logging: {every: 1}
"""
# Overrides of it for a run whose pseudo-heads grow: two layers that may, and a global one.
GROWING = (
    "model.config.num_pseudo_heads=1", "model.config.window=8", "model.config.num_hidden_layers=3",
    "model.config.global_every=3", "model.config.causal=token", "model.config.rope_positions=token",
    "growth={every: 2, until: 2}",
)  # fmt: skip
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["iha.train.loop", "iha.train.export", "runs"])


def tiny(directory: Path, *overrides: str) -> Recipe:
    path = directory / "tiny.yaml"
    path.write_text(TINY)
    return read_recipe(path, overrides)


def start(
    recipe: Recipe,
    run: Path,
    world: int = 1,
    *,
    slow_save: float = 0.0,  # seconds that every part of a save takes longer
    stop_at: int | None = None,  # every process gets SIGTERM after this step
    output: Path | None = None,  # directory of the processes' output, `run.rank0.txt` and so on; beside the run
) -> list:
    """The run on so many processes."""
    shared = (world, _free_port(), slow_save, stop_at, output or run.parent)
    workers = [_server.Process(target=_worker, args=(recipe, run, rank, *shared)) for rank in range(world)]
    for worker in workers:
        worker.start()
    return workers


def finish(workers, timeout: float = 300) -> list[int]:
    """Exit codes. When one fails, the others are ended, as torchrun does it: they may wait for it for ever."""
    until, grace = time.monotonic() + timeout, 10.0
    while any(worker.is_alive() for worker in workers):
        failed = [worker for worker in workers if worker.exitcode]
        if failed and not grace:
            kill(workers)
        grace = max(0.0, grace - 0.05) if failed else grace
        if time.monotonic() > until:
            kill(workers, signal.SIGABRT)  # they write where they stand
            raise TimeoutError(f"not ended in {timeout} s: exit codes {[worker.exitcode for worker in workers]}")
        time.sleep(0.05)
    return [worker.exitcode for worker in workers]


def kill(workers, how: int = signal.SIGKILL) -> None:
    for worker in workers:
        if worker.is_alive():
            os.kill(worker.pid, how)
    for worker in workers:
        worker.join()


def completed(recipe: Recipe, run: Path, world: int = 1, timeout: float = 300) -> None:
    try:
        codes = finish(start(recipe, run, world), timeout)
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n" + "\n".join(output(run, rank) for rank in range(world))) from error
    assert codes == [0] * world, "\n".join(output(run, rank) for rank in range(world))


def output(run: Path, rank: int = 0) -> str:
    return run.with_name(f"{run.name}.rank{rank}.txt").read_text()


def metrics(run: Path, *names: str) -> list[tuple]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(r["step"], *(r[name] for name in names)) for r in records if all(name in r for name in names)]


def weights(run: Path, prefix: str = ""):
    """All tensors of the newest checkpoint."""
    from iha.train.export import checkpoint_tensors

    return checkpoint_tensors(sorted((run / "checkpoints").glob("step-*"))[-1], prefix)


def _worker(
    recipe: Recipe, run: Path, rank: int, world: int, port: int, slow_save: float, stop_at: int | None, output: Path
) -> None:
    out = (output / f"{run.name}.rank{rank}.txt").open("a", buffering=1)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
    import faulthandler
    import logging

    import torch

    faulthandler.enable()

    from iha.train import checkpoints
    from iha.train.loop import Evaluation, train

    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if world > 1:
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
    if slow_save:
        _stretch(checkpoints, slow_save)

    def stop(model, step: int) -> dict[str, float]:
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return {}

    try:
        outcome = train(recipe, run, evaluations=[Evaluation("stop", 1, stop)] if stop_at else [])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        os._exit(2)
    os._exit(0 if outcome.finished else 143)


def _stretch(checkpoints, seconds: float) -> None:
    """Make every part of a save last, so that a kill falls into it."""
    save, finish, sync = checkpoints.dcp.save, checkpoints.Checkpoints._finish, checkpoints._sync

    def slowly(function):
        def stretched(*args, **kwargs):
            time.sleep(seconds)
            result = function(*args, **kwargs)
            time.sleep(seconds)
            return result

        return stretched

    checkpoints.dcp.save = slowly(save)
    checkpoints.Checkpoints._finish = slowly(finish)
    checkpoints._sync = slowly(sync)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
