"""Tables of synthetic sweeps, and what is kept of them in `results/synthetic`: one JSON file per sweep, and a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.records import Column, Table, output_directory, write_text
from iha.report.synthetic_plots import plot_sweep
from iha.synthetic.files import PLAN, read_plan, read_results, write_results
from iha.synthetic.statistics import after, spread, stopped_by_loss, summarise, without_seed
from iha.synthetic.sweep import read_runs

_EPOCHS = (1, 4, 9, 16, 25, 50, 75, 100, 150, 200)  # shown on the page, up to the longest run
_DIGITS = 6  # kept of every number


def summary_table(summary: dict[str, Any]) -> Table:
    """Every variant at equal epochs, FLOPs and time; mean ± standard deviation over seeds, in percent."""
    equal = summary["equal"]
    numbers = (
        "seeds", "best epoch's", f"at epoch {equal['epochs']}", f"at {equal['flops']:.2g} FLOPs",
        f"after {equal['cpu_seconds']:.0f} s", "parameters", "s/epoch", "FLOPs/epoch",
    )  # fmt: skip
    table = Table(
        f"{summary['task']}: test {summary['score']} in %, mean ± spread over seeds",
        ["variant", *(Column(title, align="right") for title in numbers)],
    )
    for variant in summary["variants"]:
        scores = [_percent(variant[key]) for key in ("final", "equal_epochs", "equal_flops", "equal_cpu_seconds")]
        costs = [
            f"{variant['parameters']:,}",
            f"{variant['cpu_seconds_per_epoch']:.1f}",
            f"{variant['flops_per_epoch']:.2e}",
        ]
        table.add([variant["label"], len(variant["seeds"]), *scores, *costs])
    return table


def keep_sweeps(sweeps: Path, results: Path, figures: Path) -> list[Path]:
    """Every sweep directory under `sweeps` as a file in `results`, with its figures; unfinished runs as far as they
    got, marked as such. Then the page. Returns what was written."""
    output_directory(results)
    written = []
    for sweep in sorted(path.parent for path in sweeps.glob(f"*/{PLAN}")):
        runs = read_runs(sweep)
        if not runs:
            continue
        plan, command = read_plan(sweep)
        content = {
            "runs_planned": len(plan), "runs_finished": sum(run["finished"] for run in runs),
            "summary": _rounded(summarise(runs)),
            "runs": [_rounded({k: v for k, v in run.items() if k not in ("machine", "progress")}) for run in runs],
        }  # fmt: skip
        path = results / f"{sweep.name}.json"
        command = command.split(" --out ")[0]
        write_results(path, content, command=command, experiment=sweep.name, machine=runs[0]["machine"])
        written += [path, *plot_sweep(runs, output_directory(figures / sweep.name))]
    return [*written, write_page(results)]


def write_page(results: Path) -> Path:
    """All tables of a results directory, in its README.md."""
    kept = [read_results(path) for path in sorted(results.glob("*.json"))]
    if not kept:
        raise ValueError(f"{results} holds no kept sweep (*.json)")
    write_text(results / "README.md", markdown_page(kept))
    return results / "README.md"


def draw_kept(results: Path, figures: Path) -> list[Path]:
    """The figures of every kept sweep again, from its file."""
    written = []
    for path in sorted(results.glob("*.json")):
        written += plot_sweep(read_results(path)["runs"], output_directory(figures / path.stem))
    return written


def markdown_page(results: Sequence[dict[str, Any]]) -> str:
    """Every kept sweep with its command and a table: test scores in percent, mean ± standard deviation over seeds."""
    head = (
        "# Kept results of `iha synth`\n\n"
        "Written by `iha collect results/synthetic` from the JSON files beside it; `docs/synthetic.md` says what they "
        "mean. Test scores in %, mean ± standard deviation over the seeds that got so far (n); *best* is that "
        "of the epoch with the best validation score. *By loss*: had the runs stopped early by validation loss, where "
        "they would have. FLOPs and time are "
        "those of the cheapest finished run (of all runs where none is finished); time is CPU time on one core. The "
        "model is the paper's or our first one, `ours`; commands are as they were typed then, and to repeat one of "
        "`ours` with `--scale paper` takes `--model ours --widths 64` today.\n"
    )
    return "\n".join([head, *(_sweep_section(result) for result in results)])


def _sweep_section(result: dict[str, Any]) -> str:
    runs, summary = result["runs"], summarise(result["runs"])
    longest, equal = max(len(run["history"]) for run in runs), summary["equal"]
    epochs = sorted({*(epoch for epoch in _EPOCHS if epoch < longest), longest})
    numbers = (
        "seeds", "epochs", "best", "epochs by loss", "best by loss",
        *(f"epoch {epoch}" for epoch in epochs), f"at {equal['flops']:.2g} FLOPs",
        f"after {equal['cpu_seconds']:.0f} s", "s/epoch", "FLOPs/epoch",
    )  # fmt: skip
    table = Table("", ["", *(Column(title, align="right") for title in numbers)])
    for variant in summary["variants"]:
        group = [run for run in runs if without_seed(run["config"]) == variant["config"]]
        shown = _range([len(run["history"]) for run in group]) + ("" if all(variant["finished"]) else ", stopped")
        by_loss = [stopped for run in group if (stopped := stopped_by_loss(run))]
        scores = [_percent(spread([after(run, epoch) for run in group]), counted=True) for epoch in epochs]
        prices = [_percent(variant[key], counted=True) for key in ("equal_flops", "equal_cpu_seconds")]
        costs = [f"{variant['cpu_seconds_per_epoch']:.1f}", f"{variant['flops_per_epoch']:.2e}"]
        best = _percent(variant["final"], counted=True)
        best_by_loss = _percent(spread([test for _, test in by_loss]), counted=True)
        shown_by_loss = _range([epochs for epochs, _ in by_loss])
        table.add([variant["label"], len(group), shown, best, shown_by_loss, best_by_loss, *scores, *prices, *costs])
    finished = f"{result['runs_finished']} of {result['runs_planned']} runs finished"
    models = ", ".join(sorted({run["config"]["model"] for run in runs}))
    head = f"## {result['experiment']}\n\n`{result['command']}`: {finished}. Model: {models}.\n\n"
    return head + table.markdown()


def _range(numbers: Sequence[int]) -> str:
    return "–".join(map(str, dict.fromkeys((min(numbers), max(numbers))))) if numbers else "–"


def _percent(values: dict[str, float] | None, *, counted: bool = False) -> str:
    if values is None:
        return "–"
    deviation = f" ± {100 * values['sd']:.1f}" if values["n"] > 1 else ""
    return f"{100 * values['mean']:.1f}{deviation}" + (f" ({values['n']:.0f})" if counted else "")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
