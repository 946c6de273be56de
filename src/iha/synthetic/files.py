"""The files of a sweep: its plan, the record of every run, checkpoints. Those of earlier versions stay readable."""

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from iha.records import Record, read_json, read_record, write_bytes, write_json, write_record
from iha.synthetic.config import RunConfig

PLAN, SUMMARY, RUNS = "sweep.json", "summary.json", "runs"
RUN_KIND, PLAN_KIND, SUMMARY_KIND, RESULTS_KIND = (
    f"synthetic-{name}" for name in ("run", "sweep", "summary", "results")
)

Run = dict[str, Any]  # the results of a run's record, with its "config" and "machine"


def run_paths(directory: Path, config: RunConfig) -> tuple[Path, Path]:
    """The record and the checkpoint of a run. Multi-head attention was called mha in the names of earlier files."""
    name = config.name
    older = name.replace("-multihead-", "-mha-")
    if not (directory / f"{name}.json").exists() and (directory / f"{older}.json").exists():
        name = older
    return directory / f"{name}.json", directory / f"{name}.pt"


def write_run(path: Path, record: Record) -> None:
    try:
        write_record(path, record)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from error


def write_config(path: Path, config: RunConfig) -> None:
    """Into the record of a run that may now train longer."""
    write_json(path, read_json(path) | {"config": config.as_json()})


def read_run(path: Path) -> Run:
    """What statistics and figures work on. ValueError names a damaged file."""
    content = read_json(path)
    try:
        if "schema" in content:
            record = read_record(path, RUN_KIND)
            run = record.results | {"config": record.config, "machine": record.machine}
        else:
            run = content  # before there was one envelope for all results
        run = run | {"config": RunConfig.from_json(run["config"]).as_json()}
        missing = {"finished", "history", "progress", "parameters", "flops_per_epoch"} - set(run)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not the record of a synthetic run: {error!r}") from error
    if missing:
        raise ValueError(f"{path} is not the record of a synthetic run: it has no {', '.join(sorted(missing))}")
    return run


def run_envelope(path: Path, config: RunConfig, command: str) -> Record:
    """The record that a run starts with; when resumed, the record of its first session."""
    if path.exists() and "schema" in read_json(path):
        return read_record(path, RUN_KIND)
    return Record.new(RUN_KIND, command=command, config=config.as_json(), seed=config.seed)


def write_plan(out: Path, runs: list[RunConfig], command: str) -> None:
    write_record(out / PLAN, Record.new(PLAN_KIND, command=command, config={"runs": [run.as_json() for run in runs]}))


def read_plan(out: Path) -> tuple[list[RunConfig], str]:
    """The runs of a sweep, in order, and the command that began it."""
    path = out / PLAN
    content = read_json(path)
    try:
        runs = content["config"]["runs"] if "schema" in content else content["runs"]
        return [RunConfig.from_json(run) for run in runs], content["command"]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not the plan of a synthetic sweep: {error!r}") from error


def write_results(path: Path, results: dict[str, Any], *, command: str, experiment: str, machine: Any) -> None:
    record = Record.new(RESULTS_KIND, command=command, config={"experiment": experiment})
    write_record(path, replace(record, machine=machine, results=results))


def read_results(path: Path) -> dict[str, Any]:
    """A kept sweep: "experiment", "command", "runs_planned", "runs_finished", "runs"."""
    content = read_json(path)
    try:
        if "schema" in content:
            record = read_record(path, RESULTS_KIND)
            content = asdict(record)["results"] | {"command": record.command} | record.config
        runs = [run | {"config": RunConfig.from_json(run["config"]).as_json()} for run in content["runs"]]
        return {key: content[key] for key in ("experiment", "command", "runs_planned", "runs_finished")} | {
            "runs": runs
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not a kept synthetic sweep: {error!r}") from error


def save_state(path: Path, state: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    try:
        write_bytes(path, buffer.getvalue())
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from error


def load_state(path: Path) -> dict[str, Any]:
    """A checkpoint that `save_state` wrote here: tensors and plain data only (`weights_only`), so it can run no code.

    Not safetensors, because the state of the optimiser is nested and `iha synth` needs torch alone.
    """
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises a dozen types, by what is damaged
        reason = str(error).split("\n")[0]
        raise ValueError(
            f"{path} is not a readable checkpoint ({reason}); delete it to begin this run again"
        ) from error
