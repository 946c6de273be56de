"""One training run, resumable at any step: `train(config, directory)` returns its record."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iha.ops.native import compiler
from iha.records import Record
from iha.synthetic import files
from iha.synthetic.batches import Batches, Part, Tally, chunks, hits, num_valid, summed_loss
from iha.synthetic.config import RunConfig
from iha.synthetic.files import Run
from iha.synthetic.flops import forward_flops
from iha.synthetic.model import SyntheticModel
from iha.synthetic.stopping import best_epoch, stopped_early
from iha.synthetic.tasks import Group, generate

CHECKPOINT_SECONDS = 30.0
KERNELS = ("auto", "layers", "states")


def build_model(config: RunConfig) -> SyntheticModel:
    """The model, seeded independently of the data. One seed gives all mechanisms the same embeddings and read-out."""
    torch.manual_seed(config.seed)
    return SyntheticModel(
        config.data, config.mechanism, width=config.width, num_heads=config.num_heads,
        num_pseudo_heads=config.num_pseudo_heads, num_pseudo_keys=config.num_pseudo_keys, init=config.init,
        positions=config.positions, model=config.model, norm=config.norm, window=config.window,
        offsets=config.offsets, weights=config.weights,
    )  # fmt: skip


def build_optimiser(model: SyntheticModel, config: RunConfig) -> torch.optim.Optimizer:
    """That of the config; alpha and R may have a separate learning rate."""
    mixing = {id(p) for p in model.mixing_parameters()}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in mixing], "lr": config.learning_rate},
        {"params": model.mixing_parameters(), "lr": config.learning_rate * config.mixing_rate},
    ]
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": partial(torch.optim.SGD, momentum=0.9),
    }  # fmt: skip
    used = [group for group in groups if group["params"]]
    return kinds[config.optimiser](used, weight_decay=config.weight_decay, fused=True)


class Trainer:
    """The state of a run: everything in `state()` is what a checkpoint holds."""

    def __init__(self, config: RunConfig, kernels: str = "auto") -> None:
        """`kernels` says what computes attention: the layers, or `state_attention` (the same numbers up to rounding).

        "auto" takes the latter where it fits and there is a compiler; the record says which it was.
        """
        self.config = config
        task = config.data
        self.model = build_model(config)
        if kernels not in KERNELS:
            raise ValueError(f"kernels must be one of {', '.join(KERNELS)}; got {kernels!r}")
        if kernels == "states" and not self.model.has_states():
            raise ValueError(
                f"kernels='states' does not fit {config.mechanism} with {config.positions} on {config.task}"
            )
        by_states = kernels == "states" or (kernels == "auto" and self.model.has_states() and compiler() is not None)
        self.kernels = "states" if by_states else "layers"
        self.optimiser = build_optimiser(self.model, config)
        counts = (config.train_examples, config.validation_examples, config.test_examples)
        train, self.validation, self.test = (
            generate(task, split, config.seed, count)
            for split, count in zip(("train", "validation", "test"), counts, strict=True)
        )
        self.batches = Batches(train, config.batch_size, config.seed)
        flops = {size: forward_flops(self.model, size) for size in train}
        # The usual count: backward is twice forward.
        self.flops_per_epoch = 3 * sum(flops[size] * len(group) for size, group in train.items())
        self.history: list[dict[str, float]] = []
        self.epoch, self.step, self.tally = 0, 0, Tally()
        self.seconds = self.cpu_seconds = 0.0  # of training, this epoch

    def run_epoch(self, after_step: Callable[[], None]) -> None:
        """Train from the current position to the end of the epoch, then evaluate."""
        for parts in self.batches.epoch(self.epoch, self.step):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            self.train_batch(parts)
            self.step += 1
            self.seconds += time.perf_counter() - begin
            self.cpu_seconds += time.process_time() - begin_cpu
            after_step()
        validation, test = self.evaluate(self.validation), self.evaluate(self.test)
        self.history.append({
            "epoch": self.epoch + 1,
            "train_loss": self.tally.mean_loss, "validation_loss": validation.mean_loss, "test_loss": test.mean_loss,
            "train": self.tally.score, "validation": validation.score, "test": test.score,
            "flops": self.flops_per_epoch, "seconds": self.seconds, "cpu_seconds": self.cpu_seconds,
        })  # fmt: skip
        self.epoch, self.step, self.tally, self.seconds, self.cpu_seconds = self.epoch + 1, 0, Tally(), 0.0, 0.0

    def train_batch(self, parts: list[Part]) -> None:
        """One step of the optimiser, on one batch cut by size."""
        valid = sum(num_valid(targets) for _, _, targets in parts)
        for outputs, targets in self._outputs(parts):
            loss = summed_loss(outputs, targets, self.config.data.kind)
            (loss / valid).backward()
            self._count(self.tally, loss, outputs, targets)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def evaluate(self, groups: dict[int, Group]) -> Tally:
        tally = Tally()
        for part in chunks(groups):
            for outputs, targets in self._outputs([part]):
                self._count(tally, summed_loss(outputs, targets, self.config.data.kind), outputs, targets)
        return tally

    def _outputs(self, parts: list[Part]) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets: part by part, or all tokens at once with attention over states."""
        if self.kernels == "states":
            outputs = self.model.forward_states([inputs for _, inputs, _ in parts])  # (F, num_outputs)
            yield outputs, torch.cat([targets.flatten() for _, _, targets in parts])
            return
        for size, inputs, targets in parts:
            yield self.model(inputs, size), targets

    def _count(self, tally: Tally, loss: Tensor, outputs: Tensor, targets: Tensor) -> None:
        value = loss.item()
        if not math.isfinite(value):  # before it is saved: what earlier steps left stays as it is
            raise ValueError(
                f"the loss is {value} after {self.step} steps of epoch {self.epoch + 1}: the run has diverged, perhaps "
                f"by its learning rate, {self.config.learning_rate:g} with {self.config.optimiser}"
            )
        tally.add(value, num_valid(targets), *hits(outputs.detach(), targets, self.config.data.kind))

    @property
    def finished(self) -> bool:
        return self.epoch >= self.config.epochs or stopped_early(self.history, self.config.patience)

    def state(self) -> dict[str, Any]:
        return {
            "config": self.config.as_json(), "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(),
            "history": self.history, "epoch": self.epoch, "step": self.step, "tally": asdict(self.tally),
            "seconds": self.seconds, "cpu_seconds": self.cpu_seconds,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        if not self.config.continues(RunConfig.from_json(state["config"])):
            raise ValueError(f"the checkpoint is of another run: {state['config']}, not {self.config.as_json()}")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.history, self.epoch, self.step = state["history"], state["epoch"], state["step"]
        self.tally, self.seconds, self.cpu_seconds = Tally(**state["tally"]), state["seconds"], state["cpu_seconds"]

    def results(self) -> dict[str, Any]:
        """What is kept of the run: the results in its record."""
        best = self.history[best_epoch(self.history)] if self.history else None
        return {
            "name": self.config.name, "finished": self.finished,
            "progress": {"epoch": self.epoch, "step": self.step, "steps": len(self.batches)},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "mixing_parameters": sum(p.numel() for p in self.model.mixing_parameters()),
            "kernels": self.kernels, "flops_per_epoch": self.flops_per_epoch, "best": best, "history": self.history,
        }  # fmt: skip

    def finish(self, record: Record) -> Record:
        """The current record; its seconds are the training time of all sessions."""
        seconds = self.seconds + sum(entry["seconds"] for entry in self.history)
        return record.finished(self.results(), seconds)


def earlier_run(config: RunConfig, directory: Path) -> Run | None:
    """What an earlier call has left of this run; ValueError when it cannot go on from there."""
    record_path, state_path = files.run_paths(directory, config)
    if not record_path.exists():
        return None
    run = files.read_run(record_path)
    if not config.continues(RunConfig.from_json(run["config"])):
        raise ValueError(f"{record_path} is of another configuration: {run['config']}")
    early, limit = stopped_early(run["history"], config.patience), run["config"]["epochs"]
    if run["finished"] and not early and limit < config.epochs and not state_path.exists():
        raise ValueError(
            f"{record_path} ended at its limit of {limit} epochs and has no checkpoint beside it, so it cannot go on "
            f"to {config.epochs}"
        )
    return run


def train(
    config: RunConfig, directory: Path, kernels: str = "auto", command: str = "", pause_at: int | None = None
) -> Run:
    """Start or resume one run; its record and checkpoint are in `directory` under the run's name.

    `pause_at` is the epoch after which it stops for now, unfinished: a later call goes on. So does one with more
    `config.epochs`, unless the run has stopped early.
    """
    record_path, state_path = files.run_paths(directory, config)
    run = earlier_run(config, directory)
    if run and run["config"]["epochs"] < config.epochs:
        files.write_config(record_path, config)
        run["config"] = config.as_json()
    if run and (len(run["history"]) >= config.epochs or stopped_early(run["history"], config.patience)):
        return run
    envelope = files.run_envelope(record_path, config, command)
    trainer = Trainer(config, kernels)
    if state_path.exists():
        state = files.load_state(state_path)
        try:
            trainer.load(state)
        except (KeyError, TypeError, RuntimeError) as error:
            raise ValueError(f"{state_path} is not a checkpoint of this run: {error}") from error

    def save() -> None:
        files.save_state(state_path, trainer.state())
        files.write_run(record_path, trainer.finish(envelope))

    saved = time.monotonic()

    def after_step() -> None:
        nonlocal saved
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save()
            saved = time.monotonic()

    while not trainer.finished:
        if pause_at is not None and trainer.epoch >= pause_at:
            return files.read_run(record_path)
        trainer.run_epoch(after_step)
        save()
        saved = time.monotonic()
    files.write_run(record_path, trainer.finish(envelope))
    if stopped_early(trainer.history, config.patience):
        state_path.unlink(missing_ok=True)  # not needed again; at the limit of epochs it is, if that is raised
    return files.read_run(record_path)
