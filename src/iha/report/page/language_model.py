"""The paper's main experiment, to scale: losses, when retrieval is learned, and what the models answer."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from iha.experiment.compare import compare, is_swept
from iha.experiment.evaluation import KIND as EVALUATION
from iha.experiment.measure import KIND as MEASUREMENT
from iha.experiment.plan import PHASES
from iha.experiment.run import KIND as RUN
from iha.records import Record
from iha.report.page.charts import bars, lines
from iha.report.page.results import ORIGINS, Results
from iha.report.page.section import Chart, Details, Figure, Missing, Section, Text
from iha.report.scale_model import evaluation_table, phase_tables, task_title
from iha.report.scale_model_measured import measured_tables

COMMAND = "iha experiment scale-model"
EVALUATE = "iha experiment evaluate out/scale-model"
PROBES = ("pairs", "needles", "hops 1", "hops 2", "hops 3", "arithmetic")


def language_model_section(results: Results) -> Section:
    section = Section("language-model", "Language model")
    section.paragraph(
        "Five mechanisms on one backbone, the same data in the same order, the same optimiser: half real text, half "
        "puzzles that ask for retrieval and for chained facts. The paper trains 2.4 B parameters on 240 B tokens; "
        "these models have about a million. What does not show here may show there."
    )
    studies = scale_models(results)
    if not studies:
        section.add(Missing("the five mechanisms trained side by side", COMMAND))
    for number, (origin, runs) in enumerate(studies):
        for phase in PHASES:
            if any(run.config["phase"] == phase for run in runs):
                _add_phase(section, compare(runs, phase), runs[0].command, number, origin)
        section.add(*_curves(runs, number, origin))
    _add_measurements(section, results)
    _add_answers(section, results)
    return section


def _add_phase(section: Section, compared: dict[str, Any], command: str, number: int, origin: str) -> None:
    first, *rest = phase_tables(compared)
    first.title = f"{first.title} ({origin})"
    section.add(Figure(first, command))
    if compared["rows"]:
        section.add(_losses(compared, command, f"{number}-{compared['phase']}", origin))
    if rest:
        tables = tuple(Figure(table, command) for table in rest)
        section.add(Details(f"More on {compared['phase']}: when puzzles are learned, costs, variants", tables))


def scale_models(results: Results) -> list[tuple[str, list[Record]]]:
    """The runs of every scale model: those of one directory were trained to be compared. This run's first."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for found in results.of_kind(RUN):
        groups[found.origin, str(found.path.parent)].append(found.record)
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


def _curves(runs: Sequence[Record], number: int, origin: str) -> list[Chart]:
    """Pre-training of the five mechanisms, seed 0."""
    plain = [
        run
        for run in runs
        if run.config["phase"] == "pretrain" and run.seed == 0 and not run.config["variant"]
        if not is_swept(run.config["name"])
    ]
    if not plain:
        return []
    loss = [
        {"model": run.config["label"], "tokens": point["tokens"] / 1e6, "loss": point["text"]}
        for run in plain
        for point in run.results["validation"]
        if "text" in point
    ]
    probes = [
        {"model": run.config["label"], "tokens": point["tokens"] / 1e6, "accuracy": 100 * point[name], "puzzle": name}
        for run in plain
        for point in run.results["probe"]
        for name in PROBES
        if name in point
    ]
    command = plain[0].command
    loss_spec = lines(loss, "tokens", "loss", "model", x_title="tokens, millions", y_title="validation loss on text")
    probe_spec = lines(
        probes, "tokens", "accuracy", "model",
        x_title="tokens, millions", y_title="accuracy, %", facet="puzzle", number=".1f",
    )  # fmt: skip
    title, learned = "Validation loss on text, seed 0", "When retrieval and chaining are learned, seed 0"
    return [
        Chart(f"loss-curves-{number}", f"{title} ({origin})", loss_spec, "loss against tokens", command, ("x", "y")),
        Chart(f"probe-curves-{number}", f"{learned} ({origin})", probe_spec, "accuracy against tokens", command),
    ]


def _add_measurements(section: Section, results: Results) -> None:
    """What finished runs can do: retrieval by length, puzzles by kind, word problems."""
    for origin in ORIGINS:
        records = [found.record for found in results.of_kind(MEASUREMENT, origin)]
        for table in measured_tables(sorted(records, key=lambda record: str(record.config["name"]))):
            table.title = f"{table.title} ({origin})"
            section.add(Figure(table, records[0].command))


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
