"""The paper's tables and figures of results, ours beside its numbers; what was not run, with its command."""

from collections.abc import Sequence

from iha.evaluate.paper import (
    BASELINE,
    FINE_TUNED,
    MULTI_KEY_GAINS,
    PRETRAIN,
    RULER_AVERAGES,
    RULER_WHERE,
    SYNTHETIC_WHERE,
    PaperTable,
    ruler_table,
)
from iha.evaluate.results import KIND
from iha.evaluate.tables import Model, beside_paper, ruler_by_task, ruler_lengths
from iha.records import Column, Table
from iha.report.page.paper_model import bars_table, gather, missing_commands
from iha.report.page.results import Results
from iha.report.page.section import Figure, Missing, Section

PAPER_LENGTHS = (4096, 8192, 16384)
RULER_COMMAND = f"iha eval run CHECKPOINT --tasks ruler --lengths {','.join(map(str, PAPER_LENGTHS))}"
COMMANDS = {
    PRETRAIN.title: "iha eval run CHECKPOINT --tasks pretrain --allow-code",
    FINE_TUNED.title: "iha eval run CHECKPOINT --tasks sft --chat --allow-code",
}


def tables_section(results: Results) -> Section:
    section = Section("tables", "The paper's tables")
    section.paragraph(
        "Every result that the paper prints, with what was measured here below it. The paper's models have 2.4 B "
        "parameters; rows called Here are other, smaller models, so only the order of mechanisms can be compared."
    )
    for paper in (PRETRAIN, FINE_TUNED):
        _add_table(section, paper, results)
    _add_ruler(section, results)
    _add_bars(section, results)
    return section


def evaluated(results: Results) -> list[Model]:
    """Every evaluation as a row. Its origin is named where two have the same name."""
    found = results.of_kind(KIND)
    names = [one.record.config["model"] for one in found]
    return [
        Model(f"{name} ({one.origin}, {one.path.parent})" if names.count(name) > 1 else name, one.record)
        for name, one in zip(names, found, strict=True)
    ]


def _add_table(section: Section, paper: PaperTable, results: Results) -> None:
    measures = list(paper.measures)
    models = [model for model in evaluated(results) if any(model.value(m) is not None for m in measures)]
    table = beside_paper(paper, measures, models, models[0] if models else None)
    table.title = f"{paper.title} ({paper.where})"
    section.add(Figure(table, models[0].record.command if models else COMMANDS[paper.title]))
    lacking = [m.title for m in measures if not any(model.value(m) is not None for model in models)]
    if lacking:
        section.add(Missing(f"{paper.title}: {', '.join(lacking)}", COMMANDS[paper.title]))


def _add_ruler(section: Section, results: Results) -> None:
    section.add(Figure(ruler_paper_table(), RULER_COMMAND))
    models = [model for model in evaluated(results) if ruler_lengths([model])]
    if models:
        table = ruler_by_task(models, ruler_lengths(models))
        table.note("Percent of the hidden values found, by length in tokens of prompt and answer.")
        section.add(Figure(table, models[0].record.command))
    if not _whole_ruler(models):
        section.add(Missing("all 13 tasks of RULER at the paper's lengths", RULER_COMMAND))


def _whole_ruler(models: Sequence[Model]) -> bool:
    average = ruler_table(PAPER_LENGTHS).measures[-1]
    return any(model.value(average) is not None for model in models)


def ruler_paper_table() -> Table:
    """What the text says of the figure, whose data are not printed."""
    lengths = list(MULTI_KEY_GAINS)
    titles = ["Average of all tasks", *(f"Multi-Key {n}" for n in lengths)]
    table = Table(f"RULER ({RULER_WHERE})", ["Model", *(Column(title, "right") for title in titles)])
    table.add_section("Paper, 2.4 B parameters")
    for model, average in RULER_AVERAGES.items():
        gains = [f"+{MULTI_KEY_GAINS[n]} %" if model == "IHA" else None for n in lengths]
        table.add([model, f"{average:.1f}", *gains])
    table.note(f"Multi-Key: relative to {BASELINE}; the values behind it are not printed.")
    return table


def _add_bars(section: Section, results: Results) -> None:
    bars = gather(results)
    table = bars_table(bars)
    table.title = f"{table.title} ({SYNTHETIC_WHERE})"
    section.add(Figure(table, missing_commands([])[0]))
    for command in missing_commands(bars):
        task, rate = command.split()[2], command.split()[-1]
        section.add(Missing(f"{task} relation composition at learning rate {rate}, to the early stop", command))
