"""The paper's tables from evaluations: ours beside its own rows, with differences, intervals and average ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iha.evaluate.paper import BASELINE, FINE_TUNED, PRETRAIN, Measure, PaperTable, ruler_table
from iha.evaluate.results import read_evaluation
from iha.evaluate.ruler.settings import TASK_NAMES
from iha.evaluate.statistics import average_ranks, paired_interval
from iha.records import Column, Record, Table


@dataclass(frozen=True)
class Model:
    """One evaluation, as a row."""

    name: str
    record: Record

    def scores(self, measure: Measure) -> list[list[float]] | None:
        """Per task and question, in percent; None when a task is missing."""
        results = [self.record.results.get(task) for task in measure.tasks]
        if any(result is None or measure.metric not in result["scores"] for result in results):
            return None
        return [[100 * score for score in result["scores"][measure.metric]] for result in results if result]

    def value(self, measure: Measure) -> float | None:
        scores = self.scores(measure)
        return None if scores is None else sum(sum(group) / len(group) for group in scores) / len(scores)

    def asked(self, measure: Measure) -> list[str]:
        return [self.record.results[task]["asked"] for task in measure.tasks]


def read_models(folders: Sequence[Path]) -> list[Model]:
    models = [Model(record.config["model"], record) for record in map(read_evaluation, folders)]
    names = [model.name for model in models]
    if not models:
        raise ValueError("no evaluations were given")
    for name in {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two evaluations are called {name!r}: give models a name each, by --name of `iha eval run`")
    return models


def paper_tables(models: Sequence[Model], baseline: str | None = None) -> list[Table]:
    """Every table of the paper for which some model has at least one column."""
    reference = _baseline(models, baseline)
    lengths = ruler_lengths(models)
    wanted = [PRETRAIN, FINE_TUNED]
    wanted += [ruler_table(lengths), ruler_table(lengths, "lm-eval")] if lengths else []
    tables = []
    for table in wanted:
        measures = [m for m in table.measures if any(model.value(m) is not None for model in models)]
        if measures:
            tables.append(beside_paper(table, measures, models, reference))
    if lengths:
        tables.append(ruler_by_task(models, lengths))
    if not tables:
        raise ValueError(f"none of the paper's tasks is in {', '.join(model.name for model in models)}")
    return tables


def _baseline(models: Sequence[Model], name: str | None) -> Model:
    if name is None:
        return models[0]
    for model in models:
        if model.name == name:
            return model
    raise ValueError(f"no evaluation of the baseline {name!r}: there are {', '.join(model.name for model in models)}")


def ruler_lengths(models: Sequence[Model]) -> tuple[int, ...]:
    """Lengths at which any RULER task was run."""
    names = {name for model in models for name in model.record.results if name.startswith("ruler_")}
    return tuple(sorted({int(name.rsplit("_", 1)[1]) for name in names}))


def beside_paper(
    paper: PaperTable, measures: list[Measure], models: Sequence[Model], reference: Model | None = None
) -> Table:
    """The paper's rows, and below them ours with differences to `reference`. Without models, the paper's alone."""
    kept = [paper.measures.index(measure) for measure in measures]
    columns: list[str | Column] = ["Model"]
    for measure in measures:
        columns += [Column(measure.title, "right", wrap=True), Column("Δ", "right", wrap=True)]
    table = Table(paper.title, [*columns, Column("Avg. rank", "right")])
    theirs = {name: tuple(row[i] for i in kept) for name, row in paper.rows.items()}
    if any(value is not None for row in theirs.values() for value in row):
        table.add_section("Paper, 2.4 B parameters")
        _add_rows(table, theirs, measures, {n: _plain(row, theirs[BASELINE], measures) for n, row in theirs.items()})
        if models:
            table.add_section("Here")
    if reference is None:
        table.note(f"Percent. Δ to {BASELINE}. Ranks: over the columns that a model reports, ties averaged.")
        return table
    ours = {model.name: tuple(model.value(measure) for measure in measures) for model in models}
    deltas = {model.name: [_delta(model, reference, m) for m in measures] for model in models}
    _add_rows(table, ours, measures, deltas)
    counts = sorted({len(g) for model in models for m in measures for g in model.scores(m) or []})
    table.note(
        f"Percent. Δ to {reference.name}, and in the paper to {BASELINE}; in brackets its 95 % interval by a paired "
        f"bootstrap over the questions ({_range(counts)} per task). Ranks: over the columns shown that a "
        "model reports, ties averaged."
    )
    return table


def _add_rows(
    table: Table,
    rows: dict[str, tuple[float | None, ...]],
    measures: list[Measure],
    deltas: dict[str, list[str | None]],
) -> None:
    ranks = average_ranks(rows)
    for name, row in rows.items():
        cells: list[str | None] = [name]
        for value, delta, measure in zip(row, deltas[name], measures, strict=True):
            cells += [None if value is None else f"{value:.{measure.decimals}f}", delta]
        rank = ranks[name]
        table.add([*cells, None if rank is None else f"{rank:.2f}"])


def _plain(row: Sequence[float | None], base: Sequence[float | None], measures: list[Measure]) -> list[str | None]:
    return [
        None if a is None or b is None or row is base else f"{a - b:+.{measure.decimals}f}"
        for a, b, measure in zip(row, base, measures, strict=True)
    ]


def _delta(model: Model, reference: Model, measure: Measure) -> str | None:
    ours, theirs = model.scores(measure), reference.scores(measure)
    if ours is None or theirs is None or model is reference:
        return None
    difference, decimals = (model.value(measure) or 0) - (reference.value(measure) or 0), measure.decimals
    if model.asked(measure) != reference.asked(measure):
        return f"{difference:+.{decimals}f} (other questions)"
    low, high = paired_interval(ours, theirs)
    return f"{difference:+.{decimals}f} [{low:+.{decimals}f}, {high:+.{decimals}f}]"


def ruler_by_task(models: Sequence[Model], lengths: tuple[int, ...]) -> Table:
    table = Table("RULER by task", ["Task", "Model", *(Column(str(n), "right") for n in lengths)])
    for name in TASK_NAMES:
        for model in models:
            values = [model.value(Measure("", (f"ruler_{name}_{n}",), "RULER")) for n in lengths]
            if any(value is not None for value in values):
                table.add([name, model.name, *(None if v is None else f"{v:.1f}" for v in values)])
    return table


def _range(counts: list[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
