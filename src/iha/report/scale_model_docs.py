"""The tables and pictures of the scale model in the documentation: between two marks of a page, from records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.evaluate.pseudo_heads import KIND as PSEUDO_HEADS
from iha.experiment.compare import compare_all, read_runs
from iha.experiment.inside import DIRECTORY as INSIDE
from iha.experiment.measure import DIRECTORY as MEASURED
from iha.experiment.measure import KIND as MEASUREMENT
from iha.records import Record, Table, read_record, write_text
from iha.report.page.build import write_figures
from iha.report.page.section import Chart
from iha.report.pseudo_heads import of_records, pseudo_heads_table
from iha.report.scale_model import is_baseline, phase_tables, summary_table
from iha.report.scale_model_charts import curve_charts, difference_chart, length_chart
from iha.report.scale_model_measured import measured_tables

PAGES = {"scale-model.md": "scale-model", "conversion.md": "upcycling"}  # page: the block in it
SUMMARY = "scale-model-summary"  # a block of scale-model.md, one table
FIGURES = "figures/scale-model"
LONGER = "long"  # a directory below the records: the same runs with more steps


def compared(records: Path) -> dict[str, Any]:
    """All phases of the runs recorded in a directory."""
    runs = read_runs(records)
    if not runs:
        raise ValueError(f"{records} has no record of a run: `iha experiment scale-model` makes them")
    return compare_all(runs)


def tables(records: Path, phases: dict[str, Any]) -> dict[str, list[Table]]:
    """By the name of their block."""
    measured, inside = _read(records / MEASURED, MEASUREMENT), _read(records / INSIDE, PSEUDO_HEADS)
    main = [table for name, phase in phases.items() if name != "upcycle" for table in phase_tables(phase)]
    main += measured_tables(measured)
    if (records / LONGER).is_dir():
        main += longer_tables(records / LONGER)
    return {
        "scale-model": [*main, *([pseudo_heads_table(of_records(inside))] if inside else [])],
        "upcycling": phase_tables(phases["upcycle"]) if "upcycle" in phases else [],
    }


def longer_tables(records: Path) -> list[Table]:
    """Runs with more steps, compared among themselves; their titles say how many tokens they saw."""
    found = compare_all(read_runs(records))
    shown = []
    for phase in found.values():
        tokens = max(row["tokens"] for row in phase["rows"])
        for table in phase_tables(phase):
            table.title = f"{table.title}, {tokens / 1e6:.1f} M tokens"
            shown.append(table)
    return shown


def charts(records: Path, phases: dict[str, Any]) -> dict[str, list[Chart]]:
    runs = read_runs(records)
    differences = {name: difference_chart(phase, runs[0].command) for name, phase in phases.items() if phase["rows"]}
    main = [chart for name, found in differences.items() if name != "upcycle" for chart in found]
    measured = _read(records / MEASURED, MEASUREMENT)
    return {
        "scale-model": [*curve_charts(runs), *main, *length_chart(measured)],
        "upcycling": differences.get("upcycle", []),
    }


def write_docs(records: Path, docs: Path) -> list[Path]:
    """Fill the blocks of the pages and draw their pictures."""
    phases = compared(records)
    written, shown, drawn = [], tables(records, phases), charts(records, phases)
    (docs / FIGURES).mkdir(parents=True, exist_ok=True)
    if any(is_baseline(row) for row in phases.get("pretrain", {}).get("rows", [])):
        fill_block(docs / "scale-model.md", SUMMARY, summary_table(phases["pretrain"]).markdown().strip())
    for page, block in PAGES.items():
        fill_block(docs / page, block, block_text(shown[block], drawn[block]))
        written += [docs / page, *write_figures(drawn[block], docs / FIGURES)]
    return written


def block_text(shown: Sequence[Table], drawn: Sequence[Chart]) -> str:
    pictures = [f"![{chart.alt}]({FIGURES}/{chart.id}.svg)\n\n*{chart.title}.*" for chart in drawn]
    return "\n\n".join([*(table.markdown().strip() for table in shown), *pictures]) or "Not run."


def fill_block(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if not page.is_file():
        raise ValueError(f"{page} is missing")
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for it: {begin} and {end}")
    write_text(page, f"{before}{begin}\n\n{text}\n\n{end}{after}")


def _read(directory: Path, kind: str) -> list[Record]:
    return [read_record(path, kind) for path in sorted(directory.glob("*.json"))]
