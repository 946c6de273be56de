"""Tables of the scale model: the plan before, the comparison after."""

from collections.abc import Sequence
from typing import Any

from iha.experiment.plan import Run
from iha.records import Column, Record, Table


def plan_table(runs: Sequence[Run], tokens_per_second: float) -> Table:
    table = Table("Plan", ["run", Column("steps", "right"), Column("tokens", "right"), Column("minutes", "right")])
    for run in runs:
        minutes = run.tokens / tokens_per_second / 60
        table.add([run.name, run.recipe.schedule.steps, f"{run.tokens:,}", f"{minutes:.0f}"])
    total = sum(run.tokens for run in runs)
    hours = total / tokens_per_second / 3600
    table.note(f"{len(runs)} runs, {total:,} tokens, {hours:.1f} hours at {tokens_per_second:,.0f} tokens per second")
    return table


def comparison_table(compared: dict[str, Any]) -> Table:
    columns: list[str | Column] = [
        "model", Column("seeds", "right"), Column("text loss", "right"), Column("Δ to Global", "right"),
        Column("at equal FLOPs", "right"), Column("at equal time", "right"), Column("pairs %", "right"),
        Column("hops %", "right"), Column("pairs at 50 %", "right"), Column("tokens/s", "right"),
    ]  # fmt: skip
    table = Table(f"Scale model, {compared['phase']}", columns)
    for row in compared["rows"]:
        table.add(
            [
                row["label"], len(row["seeds"]), spread(row["loss"].get("text")), spread(row["paired"], sign=True),
                spread(row["equal"]["flops"]), spread(row["equal"]["seconds"]),
                spread(row["accuracy"].get("pairs"), 100, 1), spread(row["accuracy"].get("hops"), 100, 1),
                _learned(row["learned"].get("pairs")), f"{row['tokens_per_second']:,.0f}",
            ]
        )  # fmt: skip
    table.note("Validation loss per token; ± is the standard deviation over seeds. Δ is paired, seed by seed.")
    table.note("'pairs at 50 %': tokens until half of the retrieval questions are answered; – when never.")
    return table


def spread(summary: dict[str, Any] | None, factor: float = 1.0, digits: int = 4, sign: bool = False) -> str | None:
    if summary is None or summary["mean"] is None:
        return None
    value = f"{summary['mean'] * factor:{'+' if sign else ''}.{digits}f}"
    return value if summary["sd"] is None else f"{value} ± {summary['sd'] * factor:.{digits}f}"


def _learned(levels: dict[str, list[int | None]] | None) -> str | None:
    if levels is None:
        return None
    reached = [tokens for tokens in levels["0.5"] if tokens is not None]
    if not reached:
        return None
    mean = f"{sum(reached) / len(reached) / 1e6:.2f} M"
    missed = len(levels["0.5"]) - len(reached)
    return f"{mean} ({missed} never)" if missed else mean


def evaluation_table(record: Record, phase: str) -> Table:
    """Share of questions answered, per task, of the models after one phase."""
    models = record.results[phase]
    tasks = list(next(iter(models.values()))["tasks"])
    table = Table(f"Questions answered after {phase}, %", ["model", *(Column(task_title(t), "right") for t in tasks)])
    for model in models.values():
        table.add([model["label"], *(f"{next(iter(model['tasks'][t]['metrics'].values())):.1f}" for t in tasks)])
    counts = sorted({model["tasks"][task]["questions"] for model in models.values() for task in tasks})
    table.note(f"{' to '.join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))} questions per task.")
    return table


def task_title(name: str) -> str:
    """`ruler_niah_single_1_512` as "niah_single_1, 512 tokens", `puzzle_hops` as "hops"."""
    if name.startswith("ruler_"):
        task, _, length = name.removeprefix("ruler_").rpartition("_")
        return f"{task}, {length} tokens"
    return name.removeprefix("puzzle_")
