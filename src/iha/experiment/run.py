"""Makes the runs of a plan, each resumable, and keeps one small record per run."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.convert import convert
from iha.experiment.allocated import PHASE as ALLOCATION
from iha.experiment.allocated import reduce
from iha.experiment.plan import KIND, Run, converted, shared_data
from iha.experiment.probe import Asked, accuracies, questions
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM
from iha.records import Progress, Record, host, output_directory, read_record, silent, write_record
from iha.train.export import export
from iha.train.loop import Evaluation, train
from iha.train.metrics import FILE, read_metrics
from iha.train.prepare import TOKENIZER
from iha.train.recipe import Tokenizer
from iha.train.tokenise import load_tokenizer

PROBE = "probe"
PUZZLES = 64  # of each kind
FEWEST_STEPS = 10  # between two probes: one costs as much as some training steps of a small model


class StoppedError(Exception):
    """SIGTERM: no further run is begun. The same command continues."""


def run_all(
    runs: Sequence[Run], out: Path, records: Path, *, command: str, workers: int = 1, progress: Progress = silent
) -> list[Record]:
    """Make the runs in order. A run whose record exists is skipped. A failed run does not stop the others."""
    output_directory(records)
    finished, failures = [], []
    with progress.task("scale model", total=len(runs)) as task:
        for run in runs:
            try:
                finished.append(run_one(run, out, records, command=command, workers=workers, progress=progress))
            except ValueError as error:
                failures.append(f"{run.name}: {error}")
            task.advance(1, note=run.name)
    if failures:
        raise ValueError(f"{len(failures)} of {len(runs)} runs failed; the first: {failures[0]}")
    return finished


def run_one(
    run: Run, out: Path, records: Path, *, command: str, workers: int = 1, progress: Progress = silent
) -> Record:
    """Trained, exported for the next phase, and recorded with its curves."""
    path = records / f"{run.name}.json"
    if path.exists():
        return read_record(path, KIND)
    if run.after is not None and not (out / run.after / "export").is_dir():
        raise ValueError(f"it starts from {run.after}, which has not been made")
    directory = output_directory(out / run.name)
    if run.conversion is not None and not converted(directory).is_dir():
        _start(run, out, command)
    record = Record.new(KIND, command=command, config={**run.facts(), "recipe": run.recipe.as_dict()}, seed=run.seed)
    probe = _Probe(run, directory)
    every = max(FEWEST_STEPS, run.recipe.schedule.steps // 20)
    outcome = train(
        run.recipe, directory, command=command, workers=workers, progress=progress,
        evaluations=[Evaluation(PROBE, every, probe.measure)],
    )  # fmt: skip
    if not outcome.finished:
        raise StoppedError(f"{run.name} was stopped at step {outcome.step}, with a checkpoint")
    export(directory, directory / "export")
    seconds = read_record(directory / "run.json").seconds
    finished = record.finished(results_of(run, directory, outcome.results), seconds=seconds)
    write_record(path, finished)
    shutil.rmtree(directory / "checkpoints")  # the export has the weights; the optimiser is not needed again
    return finished


def _start(run: Run, out: Path, command: str) -> None:
    """The weights that a run starts from, made of those of the run before it."""
    source, destination, conversion = out / str(run.after) / "export", converted(out / run.name), run.conversion or {}
    if run.phase == ALLOCATION:
        reduce(source, destination, run.recipe, shared_data(out, "pretrain", run.seed), command=command, **conversion)
    else:
        _convert(source, destination, conversion)


def _convert(source: Path, destination: Path, conversion: dict[str, Any]) -> None:
    """With layers counted from the end where they are negative."""
    depth = IHAConfig.from_pretrained(source).num_hidden_layers
    layers = conversion["layers"]
    convert(source, destination, **conversion | {"layers": layers and [layer % depth for layer in layers]})


def results_of(run: Run, directory: Path, outcome: dict[str, Any]) -> dict[str, Any]:
    """Curves of loss, validation and probes against tokens, and what the run cost."""
    metrics = read_metrics(directory / FILE)
    per_step = run.recipe.data.batch * run.recipe.data.context
    flops = outcome["flops"] / outcome["tokens"]  # the mean, where pseudo-heads have grown
    training = [{"tokens": line["step"] * per_step, "loss": line["loss"]} for line in metrics if "loss" in line]
    speeds = sorted(line["tokens_per_second"] for line in metrics if "tokens_per_second" in line)
    return {
        "parameters": outcome["parameters"], "flops_per_token": flops, "training": training,
        **{prefix: _curve(metrics, prefix, per_step) for prefix in ("validation", PROBE)},
        "tokens_per_second": {"median": speeds[len(speeds) // 2], "best": speeds[-1]},
        "peak_bytes": host.peak_bytes(), "skipped": outcome["skipped"], "grown": outcome["grown"],
    }  # fmt: skip


def _curve(metrics: Sequence[dict[str, Any]], prefix: str, tokens_per_step: int) -> list[dict[str, Any]]:
    """The lines that hold values named `prefix/…`, by those names, against tokens."""
    lines = []
    for line in metrics:
        values = {key.removeprefix(f"{prefix}/"): line[key] for key in line if key.startswith(f"{prefix}/")}
        if values:
            lines.append({"tokens": line["step"] * tokens_per_step, **values})
    return lines


class _Probe:
    """Created on first use: the tokenizer exists only once the data are prepared."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.run, self.directory = run, directory
        self.asked: list[Asked] | None = None

    def measure(self, model: IHAForCausalLM, _: int) -> dict[str, float]:
        if self.asked is None:
            settings = Tokenizer("file", path=str(self.directory / TOKENIZER), end=self.run.recipe.data.tokenizer.end)
            self.asked = questions(load_tokenizer(settings), self.run.recipe.data.context, PUZZLES, seed=0)
        return accuracies(model, self.asked)
