"""The trainer: one recipe, one run directory, any number of processes, any number of sessions."""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from iha.models.modeling import IHAForCausalLM
from iha.records import Progress, Record, read_record, silent, work_in, write_record
from iha.train import state as training_state
from iha.train.batches import Batch, Corpus, Prefetched
from iha.train.build import build_model, check_model, model_config
from iha.train.checkpoints import Checkpoints
from iha.train.flops import peak_flops
from iha.train.growth import check_growth
from iha.train.metrics import FILE as METRICS
from iha.train.metrics import Meter, Metrics
from iha.train.network import Network
from iha.train.optimise import set_rate
from iha.train.order import derived_key
from iha.train.parallel import Processes, check_layout, evaluating, num_processes, processes
from iha.train.prepare import DATA, TOKENIZER, check_sources, data_directory, has_shards, prepare
from iha.train.recipe import Recipe, check_continues
from iha.train.step import gradient, update
from iha.train.tokenise import TextTokenizer, load_tokenizer
from iha.train.validate import validation_losses

log = logging.getLogger(__name__)
RECORD, KIND = "run.json", "train-run"


@dataclass(frozen=True)
class Evaluation:
    """A measurement of the current model at a fixed interval of steps and at the end, on every process."""

    name: str
    every: int
    measure: Callable[[IHAForCausalLM, int], dict[str, float]]  # (model, step)


@dataclass(frozen=True)
class Outcome:
    finished: bool  # False: stopped by SIGTERM, with a checkpoint
    step: int
    results: dict[str, Any]


def train(
    recipe: Recipe,
    directory: Path,
    *,
    command: str = "iha train",
    evaluations: Sequence[Evaluation] = (),
    workers: int = 1,
    trained: Callable[[], str | None] = lambda: None,
    progress: Progress = silent,
) -> Outcome:
    """Train, or resume the run in `directory`. ValueError for anything that the user can fix.

    `workers` and `trained` (the tokenizer, `iha.train.ahead`) are for data that is not prepared yet.
    """
    # Before they connect: one that ends at once would cut off another that still does.
    check_layout(recipe, num_processes())
    with processes() as group, ExitStack() as stack:
        group.by_first(lambda: _check(recipe, workers, group.world))
        record = Record.new(KIND, command=command, config=recipe.as_dict(), seed=recipe.seed)
        group.by_first(lambda: stack.enter_context(_run_directory(record, recipe, directory)))
        shards = data_directory(recipe, directory)
        options: dict[str, Any] = {"seed": recipe.seed, "workers": workers, "trained": trained, "progress": progress}
        group.by_first(lambda: prepare(recipe.data, shards, **options))
        return _Run(recipe, directory, shards, group, evaluations).train(record, progress)


def _check(recipe: Recipe, workers: int, world: int) -> None:
    """Refuse what cannot be trained before anything is written."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    check_growth(recipe, check_model(recipe), world)
    check_sources(recipe.data)


class _Run:
    def __init__(
        self, recipe: Recipe, directory: Path, shards: Path, group: Processes, evaluations: Sequence[Evaluation]
    ) -> None:
        self.recipe, self.directory, self.group, self.evaluations = recipe, directory, group, evaluations
        tokenizer = load_tokenizer(recipe.data.tokenizer, shards / TOKENIZER)
        self.corpus = Corpus(recipe.data, shards, tokenizer, recipe.seed)
        config = model_config(recipe, tokenizer.size, tokenizer.end_id)
        self.network = Network(build_model(recipe, config, group.device), recipe, group)
        self.checkpoints = Checkpoints(directory / "checkpoints", recipe.checkpoint, group)
        self.step = 0  # steps done
        self.seconds = 0.0  # in earlier sessions
        self.flops = 0  # of all steps done
        self.grown: list[dict[str, Any]] = []  # where and when pseudo-heads were added
        self.skipped = self.skipped_in_a_row = 0
        self._resume()
        group.by_first(lambda: self._describe(tokenizer))

    def _describe(self, tokenizer: TextTokenizer) -> None:
        tokenizer.tokenizer.save(str(self.directory / TOKENIZER))
        self.network.config.save_pretrained(self.directory)

    def _resume(self) -> None:
        found = self.checkpoints.load(self.network.tensors_of)
        if found is not None:
            state, tensors = found
            training_state.restore_steps(self.network.optimiser, tensors)
            self.step, self.seconds = state["step"], state["seconds"]
            self.skipped, self.skipped_in_a_row = state["skipped"], state["skipped_in_a_row"]
            self.grown, self.flops = state.get("grown", []), state.get("flops", self.step * self.network.flops)

    def train(self, record: Record, progress: Progress) -> Outcome:
        recipe, group = self.recipe, self.group
        results: dict[str, Any] = {"processes": group.world}
        started = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self.checkpoints.close)
            metrics = self._metrics(stack)
            batches = Prefetched(self.corpus, group.rank, group.world)
            stack.callback(batches.close)
            terminated = stack.enter_context(_sigterm())
            task = stack.enter_context(progress.task(f"training {recipe.name}", recipe.schedule.steps, self.step))
            meter = Meter(recipe.data, peak_flops() * group.world)
            values: dict[str, float] = {}
            stopped = False
            while self.step < recipe.schedule.steps and not stopped:
                measured, stopped = self._one_step(batches, terminated)
                if stopped:
                    break
                last = self.step == recipe.schedule.steps
                if last or self.step % recipe.logging.every == 0:
                    values = self._logged(measured, meter, metrics)
                task.advance(1, note=_note(values) if values else None)
                if last or self.step % recipe.validation.every == 0:
                    results["validation"] = self._validate(metrics)
                for evaluation in self.evaluations:
                    if last or self.step % evaluation.every == 0:
                        results[evaluation.name] = self._evaluate(evaluation, metrics)
                if last or self.step % recipe.checkpoint.every == 0:
                    self._save(time.monotonic() - started)
            if stopped:
                self._save(time.monotonic() - started)
            self.checkpoints.wait()
        results |= {
            "parameters": self.network.model.num_parameters(), "step": self.step, "skipped": self.skipped,
            "tokens": self.step * meter.tokens, "flops": self.flops, "grown": self.grown, **values,
        }  # fmt: skip
        if group.first:
            write_record(self.directory / RECORD, record.finished(results, self.seconds + time.monotonic() - started))
        return Outcome(not stopped, self.step, results)

    def _metrics(self, stack: ExitStack) -> Metrics | None:
        """Open until the stack closes, on the first process; None on the others."""
        opened: list[Metrics] = []

        def open_them() -> None:
            options = {"resumed_at": self.step, "name": self.recipe.name, "config": self.recipe.as_dict()}
            opened.append(Metrics(self.directory, self.recipe.logging, **options))  # type: ignore[arg-type]
            stack.callback(opened[0].close)

        self.group.by_first(open_them)
        return opened[0] if opened else None

    def _one_step(self, batches: Prefetched, terminated: Callable[[], bool]) -> tuple[dict[str, Any], bool]:
        """One step, unless the run is to stop. All processes agree on that here."""
        recipe, group = self.recipe, self.group
        batch = batches.batch(self.step).to(group.device)
        targets, stop, failed = group.sum(batch.num_targets, terminated(), self.checkpoints.failed)
        if failed:
            self.checkpoints.wait()
            raise ValueError("a checkpoint could not be written by another process")
        if stop:
            return {}, True
        if self.network.model.config.attention_dropout:  # what is dropped is a function of the step too
            torch.manual_seed(derived_key(recipe.seed, 3, self.step, group.rank))
        if recipe.growth.every is not None and self.step and self.step % recipe.growth.every == 0:
            self._grow(batch, max(1.0, targets))
        network = self.network
        learning_rate = set_rate(network.optimiser, recipe.schedule, self.step)
        loss, norm = gradient(network.objective, batch, max(1.0, targets), group.world, recipe.parallel.micro_batch)
        self.step, self.flops = self.step + 1, self.flops + network.flops
        if bool(torch.isfinite(norm)):
            self.skipped_in_a_row = 0
            update(network.objective, network.optimiser, norm, recipe.optimiser.clip)
        else:
            self._skip(float(norm))
        return {"loss": loss, "gradient_norm": norm, "learning_rate": learning_rate, "targets": targets}, False

    def _grow(self, batch: Batch, targets: float) -> None:
        """Before a step, by the gradient of its batch: a function of the weights and of the step, as all else is."""
        for found in self.network.grow_where_asked(batch, targets):
            self.grown.append({"step": self.step, **found})
            log.info("step %d: layer %d has %d pseudo-%s", self.step, found["layer"], found["number"], found["what"])
        self.network.config.save_pretrained(self.directory)

    def _skip(self, norm: float) -> None:
        self.network.optimiser.zero_grad(set_to_none=True)
        self.skipped += 1
        self.skipped_in_a_row += 1
        message = f"step {self.step}: the gradient's norm is {norm}"
        if self.recipe.optimiser.non_finite == "stop":
            raise ValueError(f"{message}; optimiser.non_finite=skip leaves such steps out")
        if self.skipped_in_a_row >= self.recipe.optimiser.max_skipped:
            raise ValueError(f"{message}: {self.skipped_in_a_row} such steps in a row, the run has diverged")
        if self.group.first:
            log.warning("%s; the step is skipped", message)

    def _logged(self, measured: dict[str, Any], meter: Meter, metrics: Metrics | None) -> dict[str, float]:
        (loss,) = self.group.sum(float(measured["loss"]))
        values = {
            **measured,
            "loss": loss,
            "gradient_norm": float(measured["gradient_norm"]),
            **meter.read(self.step, self.network.flops),
        }
        if metrics is not None:
            metrics.write(self.step, values)
        return values

    def _validate(self, metrics: Metrics | None) -> dict[str, float]:
        recipe = self.recipe
        sizes = {"sequences": recipe.validation.sequences, "micro_batch": recipe.parallel.micro_batch}
        with evaluating(self.network.objective):
            losses = validation_losses(self.network.objective, self.corpus, self.group, **sizes)
        if metrics is not None and losses:
            metrics.write(self.step, {f"validation/{name}": loss for name, loss in losses.items()})
        return losses

    def _evaluate(self, evaluation: Evaluation, metrics: Metrics | None) -> dict[str, float]:
        with evaluating(self.network.objective):
            values = evaluation.measure(self.network.model, self.step)
        if metrics is not None:
            metrics.write(self.step, {f"{evaluation.name}/{name}": value for name, value in values.items()})
        return values

    def _save(self, seconds: float) -> None:
        state = {
            "step": self.step, "seconds": self.seconds + seconds, "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row, "processes": self.group.world, "recipe": self.recipe.as_dict(),
            "layer_schedule": self.network.model.config.layer_schedule, "grown": self.grown, "flops": self.flops,
        }  # fmt: skip
        self.checkpoints.save(self.step, self.network.tensors(), state)


def _note(values: dict[str, float]) -> str:
    return f"loss {values['loss']:.4f} · {values['tokens_per_second']:,.0f} tokens/s · MFU {values['mfu']:.0%}"


@contextmanager
def _run_directory(record: Record, recipe: Recipe, directory: Path) -> Iterator[None]:
    """Lock the directory for this run, and check that it was started with this recipe."""
    path = directory / RECORD
    useful = lambda: (directory / METRICS).is_file() or has_shards(directory / DATA)  # noqa: E731
    with work_in(directory, is_worth_keeping=useful):
        if path.is_file():
            check_continues(read_record(path, KIND).config, recipe, str(directory))
        write_record(path, record)
        yield


@contextmanager
def _sigterm() -> Iterator[Callable[[], bool]]:
    """SIGTERM asks for a checkpoint and an end, at the next step."""
    received = []
    previous = signal.signal(signal.SIGTERM, lambda *_: received.append(True))
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, previous)
