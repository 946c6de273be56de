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

PAGE = "scale-model.md"  # has a block for each directory of records, named like it, and one for its summary
UPCYCLING_PAGE, UPCYCLING = "conversion.md", "upcycling"  # a page with one block of that name


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
    return {
        records.name: [*main, *([pseudo_heads_table(of_records(inside))] if inside else [])],
        UPCYCLING: phase_tables(phases["upcycle"]) if "upcycle" in phases else [],
    }


def charts(records: Path, phases: dict[str, Any]) -> dict[str, list[Chart]]:
    runs = read_runs(records)
    differences = {name: difference_chart(phase, runs[0].command) for name, phase in phases.items() if phase["rows"]}
    main = [chart for name, found in differences.items() if name != "upcycle" for chart in found]
    measured = _read(records / MEASURED, MEASUREMENT)
    return {
        records.name: [*curve_charts(runs), *main, *length_chart(measured)],
        UPCYCLING: differences.get("upcycle", []),
    }


def write_docs(records: Path, docs: Path) -> list[Path]:
    """Fill the blocks of the pages and draw their pictures."""
    phases = compared(records)
    written, shown, drawn = [], tables(records, phases), charts(records, phases)
    figures = f"figures/{records.name}"
    (docs / figures).mkdir(parents=True, exist_ok=True)
    if any(is_baseline(row) for row in phases.get("pretrain", {}).get("rows", [])):
        summary = summary_table(phases["pretrain"]).markdown().strip()
        fill_block(docs / PAGE, f"{records.name}-summary", summary)
    pages = {PAGE: records.name} | ({UPCYCLING_PAGE: UPCYCLING} if "upcycle" in phases else {})
    for page, block in pages.items():
        fill_block(docs / page, block, block_text(shown[block], drawn[block], figures))
        written += [docs / page, *write_figures(drawn[block], docs / figures)]
    return written


def block_text(shown: Sequence[Table], drawn: Sequence[Chart], figures: str) -> str:
    pictures = [f"![{chart.alt}]({figures}/{chart.id}.svg)\n\n*{chart.title}.*" for chart in drawn]
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
