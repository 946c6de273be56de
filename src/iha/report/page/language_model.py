"""The paper's main experiment, to scale: losses, when retrieval is learned, and what the models answer."""

from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from iha.evaluate.pseudo_heads import KIND as PSEUDO_HEADS
from iha.experiment.compare import SPEED_KIND, at_measured_speed, compare_all
from iha.experiment.evaluation import KIND as EVALUATION
from iha.experiment.measure import KIND as MEASUREMENT
from iha.experiment.run import KIND as RUN
from iha.records import Record
from iha.report.page.charts import bars
from iha.report.page.results import ORIGINS, Results
from iha.report.page.section import Chart, Details, Figure, Missing, Section, Text
from iha.report.pseudo_heads import of_records, pseudo_heads_table
from iha.report.scale_model import evaluation_table, phase_tables, task_title
from iha.report.scale_model_charts import curve_charts, difference_chart, length_chart
from iha.report.scale_model_measured import measured_tables

COMMAND = "iha experiment scale-model"
EVALUATE = "iha experiment evaluate out/scale-model"


def language_model_section(results: Results) -> Section:
    section = Section("language-model", "Language model")
    section.paragraph(
        "Five mechanisms on one backbone, the same data in the same order, the same optimiser: half real text, half "
        "puzzles that ask for retrieval, chained facts and arithmetic. The paper trains 2.4 B parameters on 240 B "
        "tokens; these models have less than half a million. What does not show here may show there."
    )
    studies = scale_models(results)
    if not studies:
        section.add(Missing("the five mechanisms trained side by side", COMMAND))
    for number, (origin, runs) in enumerate(studies):
        for compared in compare_all(runs).values():
            _add_phase(section, compared, runs[0].command, number, origin)
        section.add(*curve_charts(runs, f"-{number}", origin))
    _add_measurements(section, results)
    _add_answers(section, results)
    return section


def _add_phase(section: Section, compared: dict[str, Any], command: str, number: int, origin: str) -> None:
    first, *rest = phase_tables(compared)
    tokens = max((row["tokens"] for row in compared["rows"]), default=0)
    first.title = f"{first.title}, {tokens / 1e6:.1f} M tokens ({origin})" if tokens else f"{first.title} ({origin})"
    section.add(Figure(first, command))
    if compared["rows"]:
        section.add(_losses(compared, command, f"{number}-{compared['phase']}", origin))
        section.add(*difference_chart(compared, command, f"-{number}", origin))
    if rest:
        tables = tuple(Figure(table, command) for table in rest)
        section.add(Details(f"More on {compared['phase']}: when puzzles are learned, costs, variants", tables))


def scale_models(results: Results) -> list[tuple[str, list[Record]]]:
    """The runs of every scale model: those of one directory were trained to be compared. This run's first."""
    groups: dict[tuple[str, Path], list[Record]] = defaultdict(list)
    for found in results.of_kind(RUN):
        groups[found.origin, found.path.parent].append(found.record)
    for speed in results.of_kind(SPEED_KIND):
        place = speed.origin, speed.path.parent
        groups[place] = at_measured_speed(groups[place], speed.record)
    return [
        (origin, sorted(runs, key=lambda run: str(run.config["name"]))) for (origin, _), runs in groups.items() if runs
    ]


def _losses(phase: dict[str, Any], command: str, key: str, origin: str) -> Chart:
    rows = []
    for row in phase["rows"]:
        loss = row["loss"][phase["source"]]
        low, high = min(loss["values"]), max(loss["values"])
        rows.append({"model": row["label"], "loss": loss["mean"], "low": low, "high": high})
    rows.sort(key=lambda row: row["loss"])
    alt = ", ".join(f"{row['model']} {row['loss']:.3f}" for row in rows)
    title = f"validation loss on {phase['source']}, per token"
    spec = bars(rows, "model", "loss", title=title, spread=("low", "high"), number=".4f")
    return Chart(f"loss-{key}", f"Loss after {phase['phase']} ({origin})", spec, alt, command)


def _add_measurements(section: Section, results: Results) -> None:
    """What finished runs can do: retrieval by length, puzzles by kind, word problems."""
    for number, origin in enumerate(ORIGINS):
        records = _of(results, MEASUREMENT, origin)
        for table in measured_tables(records):
            table.title = f"{table.title} ({origin})"
            section.add(Figure(table, records[0].command))
        section.add(*length_chart(records, f"-{number}", origin))
        inside = _of(results, PSEUDO_HEADS, origin)
        if inside:
            section.add(Figure(pseudo_heads_table(of_records(inside)), inside[0].command))


def _of(results: Results, kind: str, origin: str) -> list[Record]:
    records = [found.record for found in results.of_kind(kind, origin)]
    return sorted(records, key=lambda record: str(record.config["name"]))


def _add_answers(section: Section, results: Results) -> None:
    """Retrieval and solutions as the models write them, scored as RULER and GSM8K are."""
    found = results.of_kind(EVALUATION)
    if not found:
        section.add(Missing("RULER's needles, held-out puzzles and generated answers", EVALUATE))
    for one in found:
        for phase in one.record.results:
            table = evaluation_table(one.record, phase)
            table.title = f"{table.title} ({one.origin})"
            section.add(Figure(table, one.record.command))
            tasks = next(iter(one.record.results[phase].values()))["answers"]
            answers = "".join(answers_html(task, one.record.results[phase]) for task in tasks)
            section.add(Details(f"Some answers after {phase}, word for word ({one.origin})", (Text(answers),)))


def answers_html(task: str, models: dict[str, Any]) -> str:
    """The end of each prompt, what is right, and what each model wrote."""
    parts = [f"<h3>{escape(task_title(task))}</h3>"]
    for question in zip(*(model["answers"][task] for model in models.values()), strict=True):
        reference = question[0]["reference"]
        right = reference if isinstance(reference, str) else ", ".join(reference)
        parts.append(f'<pre class="prompt">…{escape(question[0]["prompt"])}</pre><p>Right: {escape(right)}</p><ul>')
        for model, answer in zip(models.values(), question, strict=True):
            mark = "right" if answer["score"] == 1 else "wrong"
            text = f"<code>{escape(answer['text'].strip() or '(nothing)')}</code>"
            parts.append(f"<li>{escape(model['label'])}, {mark}: {text}</li>")
        parts.append("</ul>")
    return "".join(parts)
