"""The theorems: what was built, run and counted."""

from collections.abc import Sequence
from html import escape
from typing import Any

from iha.report.page.charts import lines
from iha.report.page.results import Results
from iha.report.page.section import Chart, Details, Figure, Missing, Section, Text
from iha.report.verify import claims_table, summary

KIND = "verify"
COMMAND = "iha verify"
_LABELS = {
    "mha": "MHA, whole layer", "iha": "IHA, whole layer",
    "mha_attention": "MHA, attention alone", "iha_attention": "IHA, attention alone",
}  # fmt: skip


def theory_section(results: Results) -> Section:
    section = Section("theory", "Theorems")
    section.paragraph(
        "Every theorem of the paper is a construction here: its weights are built, the operator runs on them, the "
        "output is compared with what the theorem promises, and the parameters are counted."
    )
    found = results.best(KIND)
    if found is None:
        section.add(Missing("the checks of the theorems", COMMAND))
        return section
    record = found.record
    claims = record.results["claims"]
    section.paragraph(f"{summary(record)} ({found.origin}).")
    theorems = list(dict.fromkeys(claim["theorem"] for claim in claims))
    items = "".join(_card(theorem, [c for c in claims if c["theorem"] == theorem]) for theorem in theorems)
    section.add(Text(f'<ul class="gallery">{items}</ul>'))
    section.add(*_charts(record.results.get("gallery", {}), record.command))
    section.add(Details(f"All {len(claims)} checks", (Figure(claims_table(record), record.command),)))
    return section


def _card(theorem: str, claims: Sequence[dict[str, Any]]) -> str:
    held = [claim for claim in claims if claim["verdict"].startswith("holds")]
    errors = [claim["error"] for claim in held if isinstance(claim["error"], int | float)]
    worst = f" Largest error where it should be zero: {max(errors):.1e}." if errors else ""
    failed = sum(not claim["passed"] for claim in claims)
    state = f'<span class="verdict fails">{failed} unexpected</span>' if failed else "all as expected"
    found = f"{len(held)} of {len(claims)} statements hold; {state}.{escape(worst)}"
    return f"<li><h3>{escape(theorem)}</h3><p>{found}</p></li>"


def _charts(gallery: dict[str, Any], command: str) -> list[Chart]:
    charts = []
    if "strictness" in gallery:
        series = {name: values for name, values in gallery["strictness"].items() if name != "t"}
        rows = [
            {"t": t, "output": value, "layer": name}
            for name, values in series.items()
            if isinstance(values, list)
            for t, value in zip(gallery["strictness"]["t"], values, strict=True)
        ]
        spec = lines(rows, "t", "output", "layer", x_title="score of the repeated token", y_title="output along v")
        alt = "On repeated tokens the printed layer is constant and the corrected layer is a hyperbolic tangent."
        charts.append(Chart("strictness", "Theorem 2: IHA computes what no multi-head layer does", spec, alt, command))
    for task, title in (("filters", "Polynomial filters"), ("cpm3", "CPM-3")):
        counts = gallery.get("parameters", {}).get(task)
        if counts:
            x = "k" if "k" in counts else next(name for name, values in counts.items() if isinstance(values, list))
            rows = [
                {"size": size, "parameters": value, "construction": _LABELS.get(name, name)}
                for name, values in counts.items()
                if isinstance(values, list) and name != x
                for size, value in zip(counts[x], values, strict=True)
            ]
            spec = lines(
                rows, "size", "parameters", "construction", x_title=x, y_title="parameters", number=",.0f"
            )  # fmt: skip
            alt = f"Parameters that the constructions for {title} need, against the size of the problem."
            chart_id = f"parameters-{task}"
            charts.append(Chart(chart_id, f"{title}: parameters needed", spec, alt, command, log_axes=("x", "y")))
    return charts
