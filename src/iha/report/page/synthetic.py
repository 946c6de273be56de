"""Appendix D: relation composition, our runs beside the paper's claim."""

from typing import Any

from iha.evaluate.paper import SYNTHETIC_LEADS
from iha.report.page.charts import bars, lines
from iha.report.page.paper_model import TASKS, is_the_papers
from iha.report.page.results import Found, Results
from iha.report.page.section import Chart, Details, Missing, Section
from iha.synthetic.files import RESULTS_KIND, SUMMARY_KIND

COMMAND = "iha synth binary --scale quick"


def synthetic_section(results: Results) -> Section:
    section = Section("synthetic", "Synthetic reasoning")
    leads = " and ".join(f"{SYNTHETIC_LEADS[task]} % on {hops}" for task, hops in TASKS.items())
    section.paragraph(
        "One-layer models learn to compose a relation with itself, two or three times (appendix D). The paper reports "
        f"IHA ahead of 2-simplicial attention by up to {leads}. Dots are test accuracies, lines their spread over "
        "seeds."
    )
    found = [f for kind in (RESULTS_KIND, SUMMARY_KIND) for f in results.of_kind(kind) if _summary(f)]
    shown = [f for f in found if _summary(f)["task"] in TASKS and len(_summary(f)["variants"]) > 1]
    if not shown:
        section.add(Missing("the synthetic comparison", COMMAND))
    further: list[Chart] = []
    for number, one in enumerate(sorted(shown, key=_importance)):
        if one.origin == "this run" or _is_comparison(one):
            section.add(*_charts(one, number))
        else:
            further += _charts(one, number)
    if further:
        section.add(Details("Heads, initialisations, learning rates and other controls", tuple(further)))
    return section


def _is_comparison(found: Found) -> bool:
    """Whether it has the paper's comparison, IHA with 2-simplicial attention: by its protocol or our first model."""
    configs = _configs(found)
    both = {"iha", "simplicial"} <= {config["mechanism"] for config in configs}
    return both and (_has_protocol(found) or all(config.get("model") != "paper" for config in configs))


def _has_protocol(found: Found) -> bool:
    """Whether it has runs of the paper's own model by the paper's protocol."""
    return any(is_the_papers(config) for config in _configs(found))


def _configs(found: Found) -> list[dict[str, Any]]:
    return [variant["config"] for variant in _summary(found)["variants"]]


def _summary(found: Found) -> dict[str, Any]:
    results = found.record.results or {}
    return results.get("summary", results if "variants" in results else {})


def _importance(found: Found) -> tuple[bool, bool, str]:
    """This run first, then the paper's own model, then by name."""
    return found.origin != "this run", not _has_protocol(found), found.path.name


def _charts(found: Found, number: int) -> list[Chart]:
    summary = _summary(found)
    rows = [
        {
            "model": variant["label"], "accuracy": 100 * variant["final"]["mean"],
            "low": 100 * variant["final"]["min"], "high": 100 * variant["final"]["max"],
            "finished": "to the end" if all(variant["finished"]) else "not to the end",
        }
        for variant in summary["variants"]
    ]  # fmt: skip
    rows.sort(key=lambda row: -row["accuracy"])
    name = found.record.config.get("experiment") or found.path.stem
    title = f"{TASKS[summary['task']]}: {name} ({found.origin})"
    key = f"synthetic-{number}"
    alt = ", ".join(f"{row['model']} {row['accuracy']:.1f} %" for row in rows)
    spec = bars(rows, "model", "accuracy", title="test accuracy, %", spread=("low", "high"), group="finished")
    charts = [Chart(f"{key}-bars", title, spec, alt, found.record.command)]
    curves = [
        {"model": run["name"], "epoch": point["epoch"], "accuracy": 100 * point["test"]}
        for run in (found.record.results or {}).get("runs", [])
        if run["config"]["seed"] == 0
        for point in run["history"]
    ]
    if curves and _has_protocol(found):
        spec = lines(curves, "epoch", "accuracy", "model", x_title="epoch", y_title="test accuracy, %", number=".1f")
        charts.append(Chart(f"{key}-curves", f"{title}, learning curves, seed 0", spec, alt, found.record.command))
    return charts
