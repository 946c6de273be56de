"""Error against heads and against parameters, for what `iha verify --train` learned."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from iha.theory.learned import Run
from iha.theory.pictures import GREY, IHA_COLOUR, MHA_COLOUR, figure, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def series(ax: Axes, runs: list[Run], axis: str) -> None:
    """Every seed a dot, the median a line."""
    for kind, colour, marker in (("MHA", MHA_COLOUR, "o"), ("IHA", IHA_COLOUR, "s")):
        groups: dict[int, list[float]] = {}
        for run in runs:
            if run.kind == kind:
                groups.setdefault(getattr(run, axis), []).append(run.error)
        xs = sorted(groups)
        medians = [sorted(groups[x])[(len(groups[x]) - 1) // 2] for x in xs]
        label = "MHA" if kind == "MHA" else "IHA, P = H"
        ax.plot(xs, medians, color=colour, linewidth=1.6, label=f"{label} (lower median)")
        ax.plot(
            [x for x in xs for _ in groups[x]],
            [e for x in xs for e in groups[x]],
            marker,
            color=colour,
            alpha=0.45,
            ms=5,
            mec="none",
        )


def floor(ax: Axes, k: int, up_to: int) -> None:
    """The best that H heads can do: H attention matrices in MHA, H² in IHA (see filter_bound)."""
    heads = list(range(1, up_to + 1))
    for kind, matrices, style in (("MHA", heads, "--"), ("IHA", [h * h for h in heads], ":")):
        bound = [math.sqrt(max(0.0, 1 - m / k)) for m in matrices]
        ax.plot(heads, bound, style, color=GREY, linewidth=1.2, label=f"no {kind} layer is below this")


def draw_learned(out: Path, runs: list[Run]) -> list[Path]:
    tasks = list(dict.fromkeys(run.task for run in runs))
    fig = figure(9.6, 3.1 * len(tasks))
    axes = fig.subplots(len(tasks), 2, squeeze=False)
    for (by_heads, by_parameters), task in zip(axes, tasks, strict=True):
        mine = [run for run in runs if run.task == task]
        ylabel = "relative error" if task.startswith("filters") else "share of wrong counts"
        if task.startswith("filters"):
            floor(by_heads, int(task.split("=")[1]), max(run.heads for run in mine))
        series(by_heads, mine, "heads")
        series(by_parameters, mine, "parameters")
        by_heads.set_xlabel("heads", fontsize=9)
        by_parameters.set_xlabel("parameters", fontsize=9)
        for ax in (by_heads, by_parameters):
            ax.set_ylabel(ylabel, fontsize=9)
            ax.set_ylim(bottom=-0.02)
            ax.set_title(task, fontsize=10)
            tidy(ax)
        by_heads.legend(frameon=False, fontsize=7.5)
    return save(fig, out, "learned")
