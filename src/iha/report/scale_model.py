"""Tables of the scale model: the plan before, the comparison after."""

from collections.abc import Sequence
from typing import Any

from iha.experiment.compare import BASELINE
from iha.experiment.plan import Run
from iha.experiment.variants import GROWTHS
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


def phase_tables(compared: dict[str, Any]) -> list[Table]:
    """Everything that the comparison of one phase says."""
    main = [row for row in compared["rows"] if not row["variant"]]
    varied = [row for row in compared["rows"] if row["variant"]]
    tables = [comparison_table(compared | {"rows": main})] if main else []
    if main:
        tables += [learned_table(compared | {"rows": main}), cost_table(compared | {"rows": main})]
    if varied:
        tables.append(ablation_table(compared | {"rows": varied}))
    if compared["sweep"]:
        tables.append(sweep_table(compared))
    return tables


def is_baseline(row: dict[str, Any]) -> bool:
    return row["mechanism"] == BASELINE and not row["variant"]


def summary_table(compared: dict[str, Any]) -> Table:
    """Every model of a phase against the baseline in one table, the largest gain first: what a reader looks for."""
    source, (base,) = compared["source"], [row for row in compared["rows"] if is_baseline(row)]
    columns = [
        "seeds", f"Δ {source}", "p", "Δ to one pseudo-head", "Δ needles", "pairs %", "word problems %",
        "FLOPs", "tokens/s",
    ]  # fmt: skip
    table = Table("In one table", ["model", *(Column(column, "right") for column in columns)])
    rows = [row for row in compared["rows"] if row["variant"] not in GROWTHS]  # these have a baseline of their own
    for row in sorted(rows, key=lambda row: row["paired"]["mean"] or 0.0):
        needles = None if row is base else row["paired_parts"].get("needles")
        table.add(
            [
                row["label"], len(row["seeds"]), None if row is base else spread(row["paired"], digits=3, sign=True),
                probability(row["paired"]), spread(row["paired_control"], digits=3, sign=True),
                spread(needles, digits=2, sign=True), spread(row["accuracy"].get("pairs"), 100, 0),
                spread(row["accuracy"].get("arithmetic"), 100, 0),
                f"{row['flops_per_token'] / base['flops_per_token']:.2f}",
                f"{row['tokens_per_second'] / base['tokens_per_second']:.2f}",
            ]
        )  # fmt: skip
    table.note(
        f"Δ: validation loss on {source} (and on needles) in nats per token minus that of Global, paired by seed, ± "
        "standard deviation; p of Student's paired t test. Δ to one pseudo-head: minus that of one pseudo-head in the "
        "same window. Pairs and word problems: answers right. FLOPs and tokens/s as ratios to Global."
    )
    return table


def comparison_table(compared: dict[str, Any]) -> Table:
    source = compared["source"]
    columns: list[str | Column] = [
        "model", Column("seeds", "right"), Column(f"{source} loss", "right"), Column("Δ to baseline", "right"),
        Column("p", "right"), Column("at equal FLOPs", "right"), Column("at equal time", "right"),
        Column("pairs %", "right"), Column("hops %", "right"), Column("Δ pairs", "right"),
    ]  # fmt: skip
    table = Table(f"Scale model, {compared['phase']}", columns)
    for row in compared["rows"]:
        table.add(
            [
                row["label"], len(row["seeds"]), spread(row["loss"].get(source)), spread(row["paired"], sign=True),
                probability(row["paired"]), spread(row["equal"]["flops"]), spread(row["equal"]["seconds"]),
                spread(row["accuracy"].get("pairs"), 100, 1), spread(row["accuracy"].get("hops"), 100, 1),
                spread(row["paired_accuracy"].get("pairs"), 100, 1, sign=True),
            ]
        )  # fmt: skip
    table.note("Validation loss per token; ± is the standard deviation over seeds. Δ and p (Student's t) are paired.")
    return table


def learned_table(compared: dict[str, Any]) -> Table:
    """Tokens until half and until 95 % of a puzzle's answers are right."""
    puzzles = ("pairs", "needles", "hops", "arithmetic")
    titles = [f"{puzzle} {level}" for puzzle in puzzles for level in ("50 %", "95 %")]
    table = Table(f"Scale model, {compared['phase']}: tokens until puzzles are learned", ["model", *titles])
    for row in compared["rows"]:
        found = [row["learned"].get(puzzle) for puzzle in puzzles]
        table.add([row["label"], *(_learned(levels, level) for levels in found for level in ("0.5", "0.95"))])
    table.note("Mean over the seeds that reached it, in millions; – when none did.")
    return table


def cost_table(compared: dict[str, Any]) -> Table:
    titles = ("parameters", "MFLOPs per token", "tokens/s", "peak MiB", "learning rate")
    table = Table(f"Scale model, {compared['phase']}: costs", ["model", *(Column(title, "right") for title in titles)])
    for row in compared["rows"]:
        table.add(
            [
                row["label"], f"{row['parameters']:,}", f"{row['flops_per_token'] / 1e6:.2f}",
                f"{row['tokens_per_second']:,.0f}", f"{row['peak_bytes'] / 2**20:,.0f}", f"{row['learning_rate']:g}",
            ]
        )  # fmt: skip
    table.note(
        "FLOPs of training. Speed as `iha experiment speed` measured it, else a run's median. Peak memory is that of "
        "the process that made the run."
    )
    return table


def speed_table(record: Record) -> Table:
    """Training steps of all mechanisms, taken in turns."""
    found = record.results
    columns = [Column("tokens/s", "right"), Column(f"of {found['reference']}", "right"), Column("three runs", "right")]
    table = Table("Training speed", ["model", *columns])
    for label, speed in found["tokens_per_second"].items():
        ratio = speed / found["tokens_per_second"][found["reference"]]
        runs = ", ".join(f"{ratio:.2f}" for ratio in found["ratios"][label])
        table.add([label, f"{speed:,.0f}", f"{ratio:.2f}", runs])
    table.note(f"In turns in one process, {record.config['threads']} thread, best of {record.config['rounds']} turns.")
    for warning in found["quiet"]["warnings"]:
        table.note(warning)
    return table


def ablation_table(compared: dict[str, Any]) -> Table:
    """Variants beside the runs that they change."""
    source = compared["source"]
    titles = (f"{source} loss", "Δ to baseline", "Δ to IHA", "pairs %", "hops %", "tokens/s")
    columns: list[str | Column] = ["model", Column("seeds", "right"), *(Column(title, "right") for title in titles)]
    table = Table(f"Scale model, {compared['phase']}: variants", columns)
    for row in compared["rows"]:
        table.add(
            [
                row["label"], len(row["seeds"]), spread(row["loss"].get(source)), spread(row["paired"], sign=True),
                spread(row["paired_default"], sign=True), spread(row["accuracy"].get("pairs"), 100, 1),
                spread(row["accuracy"].get("hops"), 100, 1), f"{row['tokens_per_second']:,.0f}",
            ]
        )  # fmt: skip
    table.note("Δ is paired by seed with a run of the same length; – where that was not made.")
    if any("grown" in row["variant"] for row in compared["rows"]):
        table.note("The baseline of pseudo-heads that have grown is as many of them in every layer from the start.")
    return table


def sweep_table(compared: dict[str, Any]) -> Table:
    rates = sorted({entry["rate"] for row in compared["sweep"] for entry in row["rates"]})
    titles = [*(f"{rate:g}" for rate in rates), "best", "taken"]
    table = Table("Learning rates", ["model", *(Column(title, "right") for title in titles)])
    for row in compared["sweep"]:
        losses = {entry["rate"]: entry["loss"] for entry in row["rates"]}
        best = f"{row['best']:g}" + (" (at the edge)" if row["at_the_edge"] else "")
        taken = ", ".join(f"{rate:g}" for rate in row["taken"]) or None
        table.add([row["label"], *(spread(losses.get(rate)) for rate in rates), best, taken])
    first = compared["sweep"][0]
    table.note(f"Validation loss on {first['source']} after {first['tokens']:,} tokens; 'taken' by the other runs.")
    return table


def spread(summary: dict[str, Any] | None, factor: float = 1.0, digits: int = 4, sign: bool = False) -> str | None:
    if summary is None or summary["mean"] is None:
        return None
    value = f"{summary['mean'] * factor:{'+' if sign else ''}.{digits}f}"
    return value if summary["sd"] is None else f"{value} ± {summary['sd'] * factor:.{digits}f}"


def probability(test: dict[str, Any]) -> str | None:
    return None if test["p"] is None else f"{test['p']:.3f}"


def _learned(levels: dict[str, list[int | None]] | None, level: str) -> str | None:
    if levels is None:
        return None
    reached = [tokens for tokens in levels[level] if tokens is not None]
    if not reached:
        return None
    mean = f"{sum(reached) / len(reached) / 1e6:.2f} M"
    missed = len(levels[level]) - len(reached)
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
