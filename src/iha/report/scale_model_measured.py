"""Tables of what the finished runs of the scale model can do: retrieval by length, puzzles, word problems."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from iha.experiment.statistics import summary
from iha.records import Column, Record, Table
from iha.report.scale_model import spread

PUZZLES = ("pairs 4", "pairs 8", "pairs 16", "pairs 32", "needles", "hops 1", "hops 2", "hops 3", "arithmetic")


def measured_tables(records: Sequence[Record]) -> list[Table]:
    tables = []
    for phase in dict.fromkeys(record.config["phase"] for record in records):
        of_phase = [record for record in records if record.config["phase"] == phase]
        tables.append(puzzles_table(of_phase))
        if any("retrieval" in record.results for record in of_phase):
            tables.append(retrieval_table(of_phase))
        if any("word_problems" in record.results for record in of_phase):
            tables.append(problems_table(of_phase))
    return tables


def retrieval_table(records: Sequence[Record]) -> Table:
    """Per task one section, a row per model, a column per length."""
    found = by_length(records)
    lengths = sorted({length for of_task in found.values() for at in of_task.values() for length in at})
    columns: list[str | Column] = ["model", *(Column(f"{length:,}", "right") for length in lengths)]
    table = Table(f"Retrieval by length after {records[0].config['phase']}, %", columns)
    for task, models in found.items():
        table.add_section(task)
        for label, at in models.items():
            table.add([label, *(spread(at.get(length), 100, 0) for length in lengths)])
    window, settings = records[0].config["window"], records[0].config["settings"]
    table.note(f"Trained on {window:,} tokens at a time; {settings['samples']} questions per cell and seed.")
    return table


def by_length(records: Sequence[Record]) -> dict[str, dict[str, dict[int, dict[str, Any]]]]:
    """Task, model, length: the accuracies over seeds."""
    values: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for record in records:
        for task, at in record.results.get("retrieval", {}).items():
            for length, accuracy in at.items():
                values[task][record.config["label"]][int(length)].append(accuracy)
    return {
        task: {label: {n: summary(at[n]) for n in sorted(at)} for label, at in models.items()}
        for task, models in values.items()
    }


def puzzles_table(records: Sequence[Record]) -> Table:
    names = [name for name in PUZZLES if any(name in record.results["puzzles"] for record in records)]
    columns: list[str | Column] = ["model", Column("seeds", "right"), *(Column(name, "right") for name in names)]
    table = Table(f"Held-out puzzles after {records[0].config['phase']}, %", columns)
    for label, group in _by_label(records).items():
        cells = [_over_seeds(group, lambda r, name=name: r.results["puzzles"].get(name), 100) for name in names]
        table.add([label, len(group), *cells])
    return table


def problems_table(records: Sequence[Record]) -> Table:
    records = [record for record in records if "word_problems" in record.results]
    steps = sorted({step for record in records for step in record.results["word_problems"]["by_steps"]})
    metrics = list(records[0].results["word_problems"]["metrics"])
    titles = [*metrics, *(f"{metrics[0]}, {step} steps" for step in steps)]
    columns: list[str | Column] = ["model", Column("seeds", "right"), *(Column(title, "right") for title in titles)]
    table = Table(f"Word problems after {records[0].config['phase']}, %", columns)
    for label, group in _by_label(records).items():
        cells = [_over_seeds(group, lambda r, m=m: r.results["word_problems"]["metrics"][m]) for m in metrics]
        cells += [
            _over_seeds(group, lambda r, s=step: r.results["word_problems"]["by_steps"].get(s, {}).get(metrics[0]))
            for step in steps
        ]
        table.add([label, len(group), *cells])
    first = records[0].results["word_problems"]
    decoding = first["decoding"]
    sampled = f"{decoding['samples']} samples at temperature {decoding['temperature']:g}"
    table.note(f"{first['questions']} held-out problems, {sampled}, judged as GSM8K.")
    return table


def _by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.config["label"]].append(record)
    return groups


def _over_seeds(group: Sequence[Record], value: Any, factor: float = 1.0) -> str | None:
    found = [number for record in group if (number := value(record)) is not None]
    return spread(summary(found), factor, 1) if found else None
