"""The paper's figures from the records of a sweep: learning curves, final-accuracy bars, and the price of both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.synthetic.statistics import summarise, without_seed

_AXES = {"epochs": "epochs", "flops": "training FLOPs", "cpu_seconds": "training time on one core, s"}


def plot_sweep(records: Sequence[dict[str, Any]], out: Path) -> list[Path]:
    """Writes curves.png, price.png and bars.png into `out`."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    summary = summarise(records)
    groups = _groups(records, summary)
    colours = colormaps["tab10" if len(groups) <= 10 else "tab20"]
    score = f"{summary['score']}, %"

    rates = sorted({record["config"]["learning_rate"] for record in records}, reverse=True)
    figure = Figure(figsize=(6.5 * len(rates), 4.2), layout="constrained")
    axes = figure.subplots(1, len(rates), squeeze=False)
    for axis, rate in zip(axes[0], rates, strict=True):
        for i, (name, group) in enumerate(groups.items()):
            if group[0]["config"]["learning_rate"] == rate:
                for split, style in (("train", ":"), ("validation", "--"), ("test", "-")):
                    xs, mean, _, _ = _curve(group, "epochs", split)
                    axis.plot(xs, mean, style, color=colours(i), label=name if split == "test" else None)
        axis.set(xlabel="epoch", ylabel=score, title=f"{summary['task']}, learning rate {rate:g}")
        axis.legend(title="solid test, dashed validation, dotted train", fontsize=8, title_fontsize=8)
    written = [_save(figure, out / "curves.png")]

    figure = Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, (key, name) in zip(axes, _AXES.items(), strict=True):
        for i, (variant, group) in enumerate(groups.items()):
            xs, mean, low, high = _curve(group, key, "test")
            axis.plot(xs, mean, color=colours(i), label=variant)
            axis.fill_between(xs, low, high, color=colours(i), alpha=0.2, linewidth=0)
        axis.set(xlabel=name, ylabel=f"test {score}", title=f"{summary['task']} at equal {key.replace('_', ' ')}")
    axes[0].legend(fontsize=8)
    written.append(_save(figure, out / "price.png"))

    figure = Figure(figsize=(max(3.5, 1.5 + 1.1 * len(groups)), 4.2), layout="constrained")
    axis = figure.subplots()
    variants = summary["variants"]
    heights = [100 * variant["final"]["mean"] for variant in variants]
    # Stopped manually in every seed, so its height is not a final score.
    stopped = ["" if any(v["finished"]) else f"\nstopped,\nepoch {max(v['epochs'])}" for v in variants]
    bars = axis.bar(
        list(groups), heights, yerr=[100 * variant["final"]["sd"] for variant in variants], capsize=4,
        color=[colours(i) for i in range(len(groups))], hatch=["//" if cut else "" for cut in stopped],
    )  # fmt: skip
    axis.bar_label(bars, [f"{height:.1f}{cut}" for height, cut in zip(heights, stopped, strict=True)], padding=2)
    lowest = min(heights)
    bottom = max(0, lowest - 10) if lowest > 0 else None
    axis.set(ylabel=f"test {score}", title=f"{summary['task']}: final", ylim=(bottom, None))
    axis.tick_params(axis="x", labelrotation=30)
    written.append(_save(figure, out / "bars.png"))
    return written


def _groups(records: Sequence[dict[str, Any]], summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    configs = {variant["label"]: variant["config"] for variant in summary["variants"]}
    for name, config in configs.items():
        groups[name] = [record for record in records if without_seed(record["config"]) == config]
    return groups


Curve = tuple[list[float], list[float], list[float], list[float]]


def _curve(group: list[dict[str, Any]], key: str, split: str) -> Curve:
    """x, then mean, lowest and highest over the seeds, as far as all of them got."""
    epochs = min(len(record["history"]) for record in group)
    columns = [[100 * record["history"][i][split] for record in group] for i in range(epochs)]
    cost = [1.0 if key == "epochs" else sum(r["history"][i][key] for r in group) / len(group) for i in range(epochs)]
    xs = [sum(cost[: i + 1]) for i in range(epochs)]
    return xs, [sum(c) / len(c) for c in columns], [min(c) for c in columns], [max(c) for c in columns]


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=90)
    return path
