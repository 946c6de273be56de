"""Pictures of the scale model, from records alone: curves against tokens, FLOPs and time, and retrieval by length."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from iha.experiment.compare import is_swept, parts
from iha.records import Record
from iha.report.page.charts import Row, bars, lines
from iha.report.page.section import Chart
from iha.report.scale_model_measured import by_length

PROBES = ("pairs", "needles", "hops 1", "hops 2", "hops 3", "arithmetic")
TASKS = ("single", "multikey-4", "multikey-8", "multikey-all", "hops-1", "hops-2")
# What training can be plotted against: its axis, and how much of it a token takes.
AGAINST: dict[str, tuple[str, Callable[[Record], float]]] = {
    "tokens": ("tokens, millions", lambda run: 1e-6),
    "flops": ("training FLOPs, 10¹²", lambda run: run.results["flops_per_token"] / 1e12),
    "time": ("minutes at the run's median speed", lambda run: 1 / run.results["tokens_per_second"]["median"] / 60),
}


def plain_runs(runs: Sequence[Record], phase: str = "pretrain") -> list[Record]:
    """Without ablations and sweeps."""
    return [
        run
        for run in runs
        if run.config["phase"] == phase and not run.config["variant"] and not is_swept(run.config["name"])
    ]


def curve_charts(runs: Sequence[Record], key: str = "", origin: str = "") -> list[Chart]:
    """Pre-training: loss on text three ways, and when puzzles are learned. Means over seeds, with their range."""
    plain = plain_runs(runs)
    if not plain or "text" not in parts(plain):
        return []
    where = f" ({origin})" if origin else ""
    charts = []
    for name, (axis, per_token) in AGAINST.items():
        rows = over_seeds(plain, "validation", "text", per_token)
        spec = lines(rows, "x", "value", "model", x_title=axis, y_title="validation loss on text", band=("low", "high"))
        alt = f"validation loss on text against {axis}"
        title = f"Validation loss on text against {name}{where}"
        charts.append(Chart(f"loss-{name}{key}", title, spec, alt, plain[0].command, ("x", "y")))
    rows = [
        row | {"value": 100 * row["value"], "low": 100 * row["low"], "high": 100 * row["high"], "puzzle": probe}
        for probe in PROBES
        if all(probe in run.results["probe"][-1] for run in plain)
        for row in over_seeds(plain, "probe", probe, AGAINST["tokens"][1])
    ]
    spec = lines(
        rows, "x", "value", "model", x_title="tokens, millions", y_title="answers right, %", facet="puzzle",
        band=("low", "high"), number=".1f",
    )  # fmt: skip
    title = f"When retrieval and chaining are learned{where}"
    charts.append(Chart(f"learned{key}", title, spec, "share of right answers against tokens", plain[0].command))
    return charts


def over_seeds(runs: Sequence[Record], curve: str, name: str, per_token: Callable[[Record], float]) -> list[Row]:
    """One row per model and point of the curve: the mean over seeds at this number of tokens, least and most."""
    points: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        for point in run.results[curve]:
            if name in point:
                at = point["tokens"] * per_token(run)
                points[run.config["label"], point["tokens"]].append((at, point[name]))
    rows = []
    for (label, _), found in points.items():
        values = [value for _, value in found]
        rows.append(
            {
                "model": label, "x": sum(at for at, _ in found) / len(found), "value": sum(values) / len(values),
                "low": min(values), "high": max(values),
            }
        )  # fmt: skip
    return rows


def length_chart(measured: Sequence[Record], key: str = "", origin: str = "") -> list[Chart]:
    """Retrieval by length, before and after adaptation: one picture per task and phase."""
    rows = []
    for phase, words in (("pretrain", "before"), ("adapt", "after adaptation")):
        for task, models in by_length([m for m in measured if m.config["phase"] == phase]).items():
            if task not in TASKS:
                continue
            for label, at in models.items():
                for length, found in at.items():
                    low, high = 100 * min(found["values"]), 100 * max(found["values"])
                    value = 100 * found["mean"]
                    rows.append(
                        {"model": label, "tokens": length, "value": value, "low": low, "high": high,
                         "panel": f"{task}, {words}"}
                    )  # fmt: skip
    if not rows:
        return []
    order = [f"{task}, {words}" for task in TASKS for words in ("before", "after adaptation")]
    rows.sort(key=lambda row: order.index(row["panel"]))
    spec = lines(
        rows, "tokens", "value", "model", x_title="length, tokens", y_title="answers right, %", facet="panel",
        band=("low", "high"), number=".0f",
    )  # fmt: skip
    where = f" ({origin})" if origin else ""
    title = f"Retrieval by length, before and after adaptation{where}"
    return [Chart(f"retrieval{key}", title, spec, "share of right answers by length", measured[0].command, ("x",))]


def difference_chart(compared: dict[str, Any], command: str, key: str = "", origin: str = "") -> list[Chart]:
    """Every run's loss minus that of its baseline: the mean over seeds, and its spread."""
    rows = []
    for row in compared["rows"]:
        if row["paired"]["n"]:
            mean, values = row["paired"]["mean"], row["paired"]["values"]
            rows.append({"model": row["label"], "value": mean, "low": min(values), "high": max(values)})
    if len(rows) < 2:
        return []
    rows.sort(key=lambda row: row["value"])
    phase, where = compared["phase"], f" ({origin})" if origin else ""
    spec = bars(
        rows, "model", "value", title=f"loss on {compared['source']} minus the baseline's", spread=("low", "high"),
        number="+.4f",
    )  # fmt: skip
    alt = ", ".join(f"{row['model']} {row['value']:+.4f}" for row in rows)
    return [Chart(f"difference-{phase}{key}", f"Against the baseline, {phase}{where}", spec, alt, command)]
