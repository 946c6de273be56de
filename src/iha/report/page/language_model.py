"""The paper's main experiment, to scale, and its tables with ours."""

from typing import Any

from iha.records import Record
from iha.report.page.charts import bars, lines
from iha.report.page.results import Results
from iha.report.page.section import Chart, Figure, Missing, Section
from iha.report.scale_model import phase_tables

COMPARISON, RUN = "scale-model", "scale-model-run"
COMMAND = "iha experiment scale-model"


def language_model_section(results: Results) -> Section:
    section = Section("language-model", "Language model")
    section.paragraph(
        "Five mechanisms on one backbone, the same data in the same order, the same optimiser: half real text, half "
        "puzzles that ask for retrieval and for chained facts. The paper trains 2.4 B parameters on 240 B tokens; "
        "these models have about a million. What does not show here may show there."
    )
    found = results.of_kind(COMPARISON)
    if not found:
        section.add(Missing("the five mechanisms trained side by side", COMMAND))
    for one in found:
        for phase in one.record.results.values():
            section.add(*(Figure(table, one.record.command) for table in phase_tables(phase)))
            if not phase["rows"]:
                continue
            section.add(_losses(phase, one.record, f"{one.origin.split()[0]}-{phase['phase']}"))
    runs = [found.record for found in results.of_kind(RUN) if found.record.config["phase"] == "pretrain"]
    if runs:
        section.add(*_curves(runs))
    return section


def _losses(phase: dict[str, Any], record: Record, key: str) -> Chart:
    rows = []
    for row in phase["rows"]:
        loss = row["loss"][phase["source"]]
        low, high = min(loss["values"]), max(loss["values"])
        rows.append({"model": row["label"], "loss": loss["mean"], "low": low, "high": high})
    rows.sort(key=lambda row: row["loss"])
    alt = ", ".join(f"{row['model']} {row['loss']:.3f}" for row in rows)
    spec = bars(
        rows,
        "model",
        "loss",
        title=f"validation loss on {phase['source']}, per token",
        spread=("low", "high"),
        number=".4f",
    )
    return Chart(f"loss-{key}", f"Loss after {phase['phase']}", spec, alt, record.command)


def _curves(runs: list[Record]) -> list[Chart]:
    plain = [run for run in runs if run.seed == 0 and not run.config["variant"] and "-lr" not in run.config["name"]]
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
        for name in ("pairs", "needles", "hops 1", "hops 2", "hops 3", "arithmetic")
        if name in point
    ]
    command = plain[0].command
    loss_spec = lines(loss, "tokens", "loss", "model", x_title="tokens, millions", y_title="validation loss on text")
    probe_spec = lines(
        probes, "tokens", "accuracy", "model",
        x_title="tokens, millions", y_title="accuracy, %", facet="puzzle", number=".1f",
    )  # fmt: skip
    learned = "When retrieval and chaining are learned, seed 0"
    return [
        Chart("loss-curves", "Validation loss on text, seed 0", loss_spec, "loss against tokens", command, ("x", "y")),
        Chart("probe-curves", learned, probe_spec, "accuracy against tokens", command),
    ]
