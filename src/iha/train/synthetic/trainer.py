"""One training run, resumable at any step: `train(config, directory)` returns its record."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from iha.records.host import describe_machine
from iha.tasks import Group, generate
from iha.train.synthetic import checkpoint
from iha.train.synthetic.batches import Batches, Part, Tally, chunks, hits, num_valid, summed_loss
from iha.train.synthetic.config import RunConfig
from iha.train.synthetic.flops import forward_flops
from iha.train.synthetic.model import SyntheticModel

CHECKPOINT_SECONDS = 30.0


def build_model(config: RunConfig) -> SyntheticModel:
    """Seeded apart from the data; the same seed gives every mechanism the same embeddings and read-out."""
    torch.manual_seed(config.seed)
    return SyntheticModel(
        config.data, config.mechanism, width=config.width, num_heads=config.num_heads,
        num_pseudo_heads=config.num_pseudo_heads, init=config.init, positions=config.positions,
        model=config.model, norm=config.norm,
    )  # fmt: skip


def build_optimiser(model: SyntheticModel, config: RunConfig) -> torch.optim.Optimizer:
    """AdamW, by default without weight decay; alpha and R may have a learning rate of their own."""
    mixing = {id(p) for p in model.mixing_parameters()}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in mixing], "lr": config.learning_rate},
        {"params": model.mixing_parameters(), "lr": config.learning_rate * config.mixing_rate},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], weight_decay=config.weight_decay, fused=True)


class Trainer:
    """The state of a run: everything in `state()` is what a checkpoint holds."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        task = config.data
        self.model = build_model(config)
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
        """Trains to the end of the epoch, from wherever in it the state stands, and evaluates."""
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
        kind = self.config.data.kind
        valid = sum(num_valid(targets) for _, _, targets in parts)
        for size, inputs, targets in parts:
            outputs = self.model(inputs, size)
            loss = summed_loss(outputs, targets, kind)
            (loss / valid).backward()
            self.tally.add(loss.item(), num_valid(targets), *hits(outputs.detach(), targets, kind))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def evaluate(self, groups: dict[int, Group]) -> Tally:
        tally, kind = Tally(), self.config.data.kind
        for size, inputs, targets in chunks(groups):
            outputs = self.model(inputs, size)
            loss = summed_loss(outputs, targets, kind).item()
            tally.add(loss, num_valid(targets), *hits(outputs, targets, kind))
        return tally

    @property
    def best_epoch(self) -> int:
        """From 0, by validation score; the first of equals."""
        scores = [entry["validation"] for entry in self.history]
        return max(range(len(scores)), key=scores.__getitem__)

    @property
    def finished(self) -> bool:
        if not self.history:
            return False
        return self.epoch >= self.config.epochs or self.epoch - 1 - self.best_epoch >= self.config.patience

    def state(self) -> dict[str, Any]:
        return {
            "config": self.config.as_json(), "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(),
            "history": self.history, "epoch": self.epoch, "step": self.step, "tally": asdict(self.tally),
            "seconds": self.seconds, "cpu_seconds": self.cpu_seconds,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        if state["config"] != self.config.as_json():
            raise ValueError(f"the checkpoint is of another run: {state['config']}, not {self.config.as_json()}")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.history, self.epoch, self.step = state["history"], state["epoch"], state["step"]
        self.tally, self.seconds, self.cpu_seconds = Tally(**state["tally"]), state["seconds"], state["cpu_seconds"]

    def record(self) -> dict[str, Any]:
        """What is kept of the run: its JSON file."""
        best = self.history[self.best_epoch] if self.history else None
        return {
            "name": self.config.name, "config": self.config.as_json(), "finished": self.finished,
            "progress": {"epoch": self.epoch, "step": self.step, "steps": len(self.batches)},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "mixing_parameters": sum(p.numel() for p in self.model.mixing_parameters()),
            "flops_per_epoch": self.flops_per_epoch, "best": best, "history": self.history,
            "machine": describe_machine(),
        }  # fmt: skip


def train(config: RunConfig, directory: Path) -> dict[str, Any]:
    """Runs, or goes on with, one run; its record and checkpoint are in `directory` under the run's name."""
    record_path, state_path = directory / f"{config.name}.json", directory / f"{config.name}.pt"
    if record_path.exists():
        record = checkpoint.read_json(record_path)
        if record["config"] != config.as_json():
            raise ValueError(f"{record_path} is of another configuration: {record['config']}")
        if record["finished"]:
            state_path.unlink(missing_ok=True)
            return record
    trainer = Trainer(config)
    if state_path.exists():
        trainer.load(checkpoint.load_state(state_path))

    def save() -> None:
        checkpoint.save_state(state_path, trainer.state())
        checkpoint.write_json(record_path, trainer.record())

    saved = time.monotonic()

    def after_step() -> None:
        nonlocal saved
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save()
            saved = time.monotonic()

    while not trainer.finished:
        trainer.run_epoch(after_step)
        save()
        saved = time.monotonic()
    record = trainer.record()
    checkpoint.write_json(record_path, record)
    state_path.unlink(missing_ok=True)  # the weights of a finished run are not needed again
    return record
