"""What `iha verify --train` learned, from its record: a table, and error against heads and against parameters."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from iha.records import Column, Record, Table
from iha.report.style import GREY, IHA_COLOUR, MHA_COLOUR, figure, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = dict[str, Any]


def learned_table(record: Record) -> Table:
    numbers = [Column(title, align="right", wrap=False) for title in ("heads", "parameters")]
    table = Table("Learned: error after training, every seed", ["task", "attention", *numbers, "errors"])
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in record.results:
        groups.setdefault((run["task"], run["kind"], run["heads"]), []).append(run)
    for (task, kind, heads), group in groups.items():
        errors = "  ".join(f"{run['error']:.3f}" for run in group)
        name = kind if kind == "MHA" else f"IHA, P = {heads}"
        table.add([task, name, heads, f"{group[0]['parameters']:,}", errors])
    return table


def draw_learned(record: Record, out: Path) -> list[Path]:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    runs: list[Run] = record.results
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    fig = figure(9.6, 3.1 * len(tasks))
    axes = fig.subplots(len(tasks), 2, squeeze=False)
    for (by_heads, by_parameters), task in zip(axes, tasks, strict=True):
        mine = [run for run in runs if run["task"] == task]
        ylabel = "relative error" if task.startswith("filters") else "share of wrong counts"
        if task.startswith("filters"):
            _floor(by_heads, int(task.split("=")[1]), max(run["heads"] for run in mine))
        _series(by_heads, mine, "heads")
        _series(by_parameters, mine, "parameters")
        by_heads.set_xlabel("heads", fontsize=9)
        by_parameters.set_xlabel("parameters", fontsize=9)
        for ax in (by_heads, by_parameters):
            ax.set_ylabel(ylabel, fontsize=9)
            ax.set_ylim(bottom=-0.02)
            ax.set_title(_title(task), fontsize=10)
            tidy(ax)
        by_heads.xaxis.set_major_locator(MaxNLocator(integer=True))
        by_parameters.xaxis.set_major_locator(MaxNLocator(6))
        by_parameters.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        by_heads.legend(frameon=False, fontsize=7.5)
    return save(fig, out, "learned")


def _series(ax: Axes, runs: list[Run], axis: str) -> None:
    """Every seed a dot, the medians a line; one point for each number of heads."""
    for kind, colour, marker in (("MHA", MHA_COLOUR, "o"), ("IHA", IHA_COLOUR, "s")):
        groups: dict[int, list[Run]] = {}
        for run in runs:
            if run["kind"] == kind:
                groups.setdefault(run["heads"], []).append(run)
        if not groups:
            continue
        points = [(group[0][axis], median(run["error"] for run in group)) for _, group in sorted(groups.items())]
        label = "MHA, median" if kind == "MHA" else "IHA with P = H, median"
        ax.plot(*zip(*points, strict=True), color=colour, linewidth=1.6, label=label)
        dots = [(run[axis], run["error"]) for group in groups.values() for run in group]
        ax.plot(*zip(*dots, strict=True), marker, color=colour, alpha=0.45, ms=5, mec="none")


def _floor(ax: Axes, k: int, up_to: int) -> None:
    """The best that H heads can do with attention that does not depend on X: H matrices in MHA, H² in IHA."""
    heads = list(range(1, up_to + 1))
    for kind, matrices, style in (("MHA", heads, "--"), ("IHA", [h * h for h in heads], ":")):
        bound = [math.sqrt(max(0.0, 1 - m / k)) for m in matrices]
        ax.plot(heads, bound, style, color=GREY, linewidth=1.2, label=f"{kind}, best fixed attention")


def _title(task: str) -> str:
    name, size = task.split(" ")
    return ("filter bank, " if name == "filters" else "CPM-3, ") + size.replace("=", " = ")
