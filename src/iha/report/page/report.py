"""The whole report from the records of a run and the committed ones."""

from html import escape
from pathlib import Path

from iha.records import output_directory, write_text
from iha.report.page.build import build_page, write_figures
from iha.report.page.cost import cost_section
from iha.report.page.errata import errata_section
from iha.report.page.explorer import explored, explorer_section
from iha.report.page.language_model import language_model_section
from iha.report.page.paper_scale import paper_scale_section
from iha.report.page.results import Results
from iha.report.page.speed import speed_section
from iha.report.page.synthetic import synthetic_section
from iha.report.page.tables import tables_section
from iha.report.page.theory import theory_section
from iha.report.page.verdicts import verdict_section
from iha.version import __version__

LEAD = (
    "Interleaved Head Attention (arXiv 2602.21371) gives every attention head P pseudo-heads, mixtures of all heads. "
    "This page shows what it is and what of the paper holds when it is built and run. Every number comes from a "
    "record of a run; what was not run is shown as missing, with the command that would run it."
)


def write_report(out: Path, run: Path | None, committed: Path | None, figures: bool = True) -> Path:
    """`out`/report.html, and every chart as PNG and SVG in `out`/figures."""
    output_directory(out)
    results = Results(run, committed)
    inside = explored(results)
    sections = [
        verdict_section(results),
        explorer_section(inside),
        theory_section(results),
        synthetic_section(results),
        language_model_section(results),
        tables_section(results),
        paper_scale_section(results),
        cost_section(),
        speed_section(results),
        errata_section(),
    ]
    html = build_page(
        sections,
        lead=escape(LEAD),
        footer=f"<p>iha {escape(__version__)}. {len(results.found)} records.</p>",
        explorer=inside.results,
    )
    path = out / "report.html"
    write_text(path, html)
    if figures:
        write_figures([chart for section in sections for chart in section.charts], output_directory(out / "figures"))
    return path
