"""Tables: a sweep while it runs and what came of it for the terminal, and all that was kept for a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from iha.train.synthetic import checkpoint
from iha.train.synthetic.config import RunConfig
from iha.train.synthetic.statistics import after, spread, without_seed

_EPOCHS = (1, 4, 9, 16)  # shown on the page


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


def _percent(values: dict[str, float] | None, *, counted: bool = False) -> str:
    if values is None:
        return "–"
    deviation = f" ± {100 * values['sd']:.1f}" if values["n"] > 1 else ""
    return f"{100 * values['mean']:.1f}{deviation}" + (f" ({values['n']:.0f})" if counted else "")


def markdown_page(results: Sequence[dict[str, Any]]) -> str:
    """Every kept sweep with its command and a table: test scores in percent, mean ± standard deviation over seeds."""
    head = (
        "# Kept results of `iha synth`\n\n"
        "Written by `python -m iha.train.synthetic.collect results/synthetic` from the JSON files beside it; "
        "`docs/synthetic.md` says what they mean. Test scores in %, mean ± standard deviation over the seeds that got "
        "so far (n). FLOPs and time are those of the cheapest finished run; time is CPU time on one core.\n"
    )
    return "\n".join([head, *(_markdown_sweep(result) for result in results)])


def _markdown_sweep(result: dict[str, Any]) -> str:
    summary, runs = result["summary"], result["runs"]
    longest = max(len(run["history"]) for run in runs)
    epochs = sorted({*(epoch for epoch in _EPOCHS if epoch < longest), longest})
    equal = summary["equal"]
    columns = [
        "", "seeds", *(f"epoch {epoch}" for epoch in epochs), f"at {equal['flops']:.2g} FLOPs",
        f"after {equal['cpu_seconds']:.0f} s", "s/epoch", "FLOPs/epoch",
    ]  # fmt: skip
    lines = [
        f"## {result['experiment']}\n",
        f"`{result['command']}`: {result['runs_finished']} of {result['runs_planned']} runs finished.\n",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for variant in summary["variants"]:
        group = [run for run in runs if without_seed(run["config"]) == variant["config"]]
        scores = [_percent(spread([after(run, epoch) for run in group]), counted=True) for epoch in epochs]
        prices = [_percent(variant[key], counted=True) for key in ("equal_flops", "equal_cpu_seconds")]
        costs = [f"{variant['cpu_seconds_per_epoch']:.1f}", f"{variant['flops_per_epoch']:.2e}"]
        lines.append("| " + " | ".join([variant["label"], str(len(group)), *scores, *prices, *costs]) + " |")
    return "\n".join(lines) + "\n"
