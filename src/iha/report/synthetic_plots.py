"""The paper's figures from the records of a sweep: learning curves, final-accuracy bars, and the price of both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iha.evaluate.paper import SYNTHETIC_LEADS
from iha.synthetic.statistics import label, summarise, varying, without_seed
from iha.synthetic.tasks import TASKS

_AXES = {"epochs": "epochs", "flops": "training FLOPs", "cpu_seconds": "training time on one core, s"}
_STYLES = ("-", "--", ":", "-.")  # of the learning rates, largest first


@dataclass(frozen=True)
class _Variant:
    """Runs that differ in the seed only. Variants that differ in the learning rate only have one colour."""

    summary: dict[str, Any]
    records: Sequence[dict[str, Any]]
    name: str  # what differs in the sweep, but for the learning rate
    colour: Any

    @property
    def rate(self) -> float:
        return self.summary["config"]["learning_rate"]

    @property
    def accuracy(self) -> float:
        return 100 * self.summary["final"]["mean"]

    @property
    def deviation(self) -> float:
        """Over the seeds; one seed has none, and its bar no whisker."""
        final = self.summary["final"]
        return 100 * final["sd"] if final["n"] > 1 else math.nan

    @property
    def stopped(self) -> str:
        """Manually, in every seed: its accuracy is not a final one."""
        return "" if any(self.summary["finished"]) else f"\nstopped,\nepoch {max(self.summary['epochs'])}"


def plot_sweep(records: Sequence[dict[str, Any]], out: Path) -> list[Path]:
    """Writes curves.png, price.png and bars.png into `out`."""
    summary = summarise(records)
    task, score = summary["task"], f"{summary['score']}, %"
    variants = _variants(records, summary)
    rates = sorted({variant.rate for variant in variants}, reverse=True)
    panels = {rate: [variant for variant in variants if variant.rate == rate] for rate in rates}
    return [
        _curves(panels, task, score, out / "curves.png"),
        _price(variants, rates, task, score, out / "price.png"),
        _bars(panels, task, score, out / "bars.png"),
    ]


def _variants(records: Sequence[dict[str, Any]], summary: dict[str, Any]) -> list[_Variant]:
    from matplotlib import colormaps

    shown = [key for key in varying([record["config"] for record in records]) if key != "learning_rate"]
    names = [label(variant["config"], shown) for variant in summary["variants"]]
    different = list(dict.fromkeys(names))
    colours = colormaps["tab10" if len(different) <= 10 else "tab20"]
    return [
        _Variant(
            variant, [record for record in records if without_seed(record["config"]) == variant["config"]],
            name, colours(different.index(name)),
        )
        for variant, name in zip(summary["variants"], names, strict=True)
    ]  # fmt: skip


def _curves(panels: dict[float, list[_Variant]], task: str, score: str, path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axis, (rate, variants) in zip(axes[0], panels.items(), strict=True):
        for variant in variants:
            for split, style in (("train", ":"), ("validation", "--"), ("test", "-")):
                xs, mean, _, _ = _curve(variant.records, "epochs", split)
                axis.plot(xs, mean, style, color=variant.colour, label=variant.name if split == "test" else None)
        axis.set(xlabel="epoch", ylabel=score, title=f"{task}, learning rate {rate:g}")
        note = "solid test, dashed validation, dotted train"
        axis.legend(title=note, fontsize=8, title_fontsize=8, loc="best")
    return _save(figure, path)


def _price(variants: Sequence[_Variant], rates: Sequence[float], task: str, score: str, path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, (key, name) in zip(axes, _AXES.items(), strict=True):
        for variant in variants:
            xs, mean, low, high = _curve(variant.records, key, "test")
            style = _STYLES[rates.index(variant.rate) % len(_STYLES)]
            axis.plot(xs, mean, style, color=variant.colour, label=variant.summary["label"])
            axis.fill_between(xs, low, high, color=variant.colour, alpha=0.2, linewidth=0)
        axis.set(xlabel=name, ylabel=f"test {score}", title=f"{task} at equal {key.replace('_', ' ')}")
    axes[0].legend(fontsize=8)
    return _save(figure, path)


def _bars(panels: dict[float, list[_Variant]], task: str, score: str, path: Path) -> Path:
    from matplotlib.figure import Figure

    counts = [len(variants) for variants in panels.values()]
    figure = Figure(figsize=(max(3.5, 1.5 + 1.1 * sum(counts)), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True, width_ratios=counts)[0]
    for axis, (rate, variants) in zip(axes, panels.items(), strict=True):
        bars = axis.bar(
            range(len(variants)), [variant.accuracy for variant in variants],
            yerr=[variant.deviation for variant in variants], capsize=4,
            color=[variant.colour for variant in variants], hatch=["//" if v.stopped else "" for v in variants],
        )  # fmt: skip
        axis.bar_label(bars, [f"{variant.accuracy:.1f}{variant.stopped}" for variant in variants], padding=2)
        axis.set_xticks(range(len(variants)), [variant.name for variant in variants], rotation=30)
        axis.set(title=f"{task}, learning rate {rate:g}")
        _mark_claim(axis, variants, task)
    axes[0].set(ylabel=f"test {score}")
    lowest = min(variant.accuracy for variants in panels.values() for variant in variants)
    if lowest > 0:
        axes[0].set(ylim=(max(0, lowest - 10), None))
    return _save(figure, path)


def _mark_claim(axis: Any, variants: Sequence[_Variant], task: str) -> None:
    """How far the paper has IHA above 2-simplicial attention at the most, where its model was trained to the end on all
    its sizes."""
    place = {v.summary["config"]["mechanism"]: (x, v) for x, v in enumerate(variants) if not v.stopped}
    if not {"iha", "simplicial"} <= set(place) or task not in SYNTHETIC_LEADS:
        return
    (x, iha), (_, other) = place["iha"], place["simplicial"]
    config = iha.summary["config"]
    if config["model"] != "paper" or tuple(config["sizes"]) != TASKS[task].sizes:
        return
    level = other.accuracy + SYNTHETIC_LEADS[task]
    axis.plot([x - 0.4, x + 0.4], [level, level], "k--", linewidth=1)
    axis.annotate(
        f"paper: IHA up to {SYNTHETIC_LEADS[task]:g} %\nabove 2-simplicial", (x, level), (0, 2),
        textcoords="offset points", ha="center", va="bottom", fontsize=8,
    )  # fmt: skip


Curve = tuple[list[float], list[float], list[float], list[float]]


def _curve(group: Sequence[dict[str, Any]], key: str, split: str) -> Curve:
    """x, then mean, lowest and highest over the seeds, as far as all of them got."""
    epochs = min(len(record["history"]) for record in group)
    columns = [[100 * record["history"][i][split] for record in group] for i in range(epochs)]
    cost = [1.0 if key == "epochs" else sum(r["history"][i][key] for r in group) / len(group) for i in range(epochs)]
    xs = [sum(cost[: i + 1]) for i in range(epochs)]
    return xs, [sum(c) / len(c) for c in columns], [min(c) for c in columns], [max(c) for c in columns]


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=90)
    return path
