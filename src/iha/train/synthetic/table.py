"""Tables for the terminal: a sweep while it runs, and what came of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from iha.train.synthetic import checkpoint
from iha.train.synthetic.config import RunConfig


def progress_table(runs: Sequence[RunConfig], directory: Path) -> Table:
    """One row a run, from the files: they are what a rerun would find."""
    table = Table(title=f"{runs[0].task}: {len(runs)} runs")
    for column in ("run", "state", "epoch", "train", "validation", "test", "s/epoch"):
        table.add_column(column, justify="left" if column in ("run", "state") else "right")
    for run in runs:
        path = directory / f"{run.name}.json"
        record = checkpoint.read_json(path) if path.exists() else None
        table.add_row(run.name, *_cells(run, record))
    return table


def _cells(run: RunConfig, record: dict[str, Any] | None) -> list[str]:
    if record is None:
        return ["[dim]waiting[/]", "", "", "", "", ""]
    progress, history = record["progress"], record["history"]
    state = "[green]finished[/]" if record["finished"] else f"[yellow]step {progress['step']}/{progress['steps']}[/]"
    epoch = f"{progress['epoch']}/{run.epochs}"
    if not history:
        return [state, epoch, "", "", "", ""]
    last = record["best"] if record["finished"] else history[-1]
    scores = [f"{100 * last[split]:.1f}" for split in ("train", "validation", "test")]
    return [state, epoch, *scores, f"{sum(entry['seconds'] for entry in history) / len(history):.1f}"]


def summary_table(summary: dict[str, Any]) -> Table:
    """Every variant at equal epochs, FLOPs and time; mean ± standard deviation over seeds, in percent."""
    table = Table(title=f"{summary['task']}: test {summary['score']} in %, mean ± spread over seeds")
    equal = summary["equal"]
    table.add_column("variant")
    for column in (
        "seeds", "best epoch's", f"at epoch {equal['epochs']}", f"at {equal['flops']:.2g} FLOPs",
        f"after {equal['cpu_seconds']:.0f} s", "parameters", "s/epoch", "FLOPs/epoch",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for variant in summary["variants"]:
        scores = [_percent(variant[key]) for key in ("final", "equal_epochs", "equal_flops", "equal_cpu_seconds")]
        costs = [
            f"{variant['parameters']:,}",
            f"{variant['cpu_seconds_per_epoch']:.1f}",
            f"{variant['flops_per_epoch']:.2e}",
        ]
        table.add_row(variant["label"], str(len(variant["seeds"])), *scores, *costs)
    return table


def _percent(values: dict[str, float] | None) -> str:
    if values is None:
        return "–"
    spread = f" ± {100 * values['sd']:.1f}" if values["n"] > 1 else ""
    return f"{100 * values['mean']:.1f}{spread}"
