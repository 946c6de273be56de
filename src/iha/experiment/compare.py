"""Runs side by side: at equal tokens, equal FLOPs and equal time, over seeds, with paired differences."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean, stdev
from typing import Any

from iha.records import Record

BASELINE = "global"
LEVELS = (0.5, 0.95)  # accuracies for which the first time they are reached is recorded
# Student's t for 95 % two-sided, by degrees of freedom: with three seeds a paired difference has two.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def compare(records: Sequence[Record], phase: str = "pretrain") -> dict[str, Any]:
    """One row per mechanism and variant of a phase; differences to global attention, seed by seed."""
    rows = []
    runs = [record for record in records if record.config["phase"] == phase]
    if not runs:
        raise ValueError(f"no runs of phase {phase!r}")
    by_label: dict[str, list[Record]] = defaultdict(list)
    for record in runs:
        by_label[_label(record)].append(record)
    main = [record for record in runs if not record.config["variant"]]
    budget = {
        "tokens": min(record.config["tokens"] for record in runs),
        "flops": min(total_flops(record) for record in main or runs),
        "seconds": min(training_seconds(record) for record in main or runs),
    }
    for label, group in by_label.items():
        group = sorted(group, key=lambda record: record.seed or 0)
        rows.append(
            {
                "label": label, "mechanism": group[0].config["mechanism"], "variant": group[0].config["variant"],
                "learning_rate": group[0].config["learning_rate"], "seeds": [record.seed for record in group],
                "parameters": group[0].results["parameters"], "flops_per_token": group[0].results["flops_per_token"],
                "tokens_per_second": mean(record.results["tokens_per_second"]["median"] for record in group),
                "peak_bytes": max(record.results["peak_bytes"] for record in group),
                "loss": {part: summary(final(record, part) for record in group) for part in parts(group)},
                "equal": {
                    kind: summary(at_budget(record, kind, budget[kind]) for record in group) for kind in budget
                },
                "accuracy": {
                    name: summary(record.results["probe"][-1][name] for record in group) for name in probed(group)
                },
                "learned": {
                    name: {str(level): [first_reach(record, name, level) for record in group] for level in LEVELS}
                    for name in probed(group)
                },
                "paired": paired(group, by_label.get(_baseline_label(by_label) or "", [])),
            }
        )  # fmt: skip
    return {"phase": phase, "budget": budget, "rows": rows}


def parts(group: Sequence[Record]) -> list[str]:
    """The sources with a validation loss in every run."""
    common = set.intersection(*(set(record.results["validation"][-1]) for record in group))
    return sorted(common - {"tokens"})


def probed(group: Sequence[Record]) -> list[str]:
    common = set.intersection(*(set(record.results["probe"][-1]) for record in group))
    return sorted(common - {"tokens"})


def final(record: Record, part: str) -> float:
    return record.results["validation"][-1][part]


def total_flops(record: Record) -> float:
    return record.config["tokens"] * record.results["flops_per_token"]


def training_seconds(record: Record) -> float:
    """At the run's median speed: stops and other work on the machine do not count."""
    return record.config["tokens"] / record.results["tokens_per_second"]["median"]


def at_budget(record: Record, kind: str, budget: float) -> float:
    """Validation loss on text at a number of tokens, FLOPs or seconds, interpolated linearly between validations."""
    per_token = {
        "tokens": 1.0,
        "flops": record.results["flops_per_token"],
        "seconds": 1 / record.results["tokens_per_second"]["median"],
    }[kind]
    return interpolated(record.results["validation"], "text", budget / per_token)


def interpolated(curve: Sequence[dict[str, float]], name: str, tokens: float) -> float:
    """Constant beyond the ends of the curve: without extrapolation, so that a run gets no undue credit."""
    points = [(point["tokens"], point[name]) for point in curve]
    if tokens <= points[0][0]:
        return points[0][1]
    for (before, low), (after, high) in pairwise(points):
        if tokens <= after:
            return low + (high - low) * (tokens - before) / (after - before)
    return points[-1][1]


def first_reach(record: Record, name: str, level: float) -> int | None:
    """Tokens until a probe's accuracy is at this level for the first time; None: not in this run."""
    return next((point["tokens"] for point in record.results["probe"] if point.get(name, 0.0) >= level), None)


def paired(group: Sequence[Record], baseline: Sequence[Record]) -> dict[str, Any]:
    """Loss on text minus the baseline's with the same seed: same data, same order, same initial backbone."""
    others = {record.seed: record for record in baseline}
    differences = [
        final(record, "text") - final(others[record.seed], "text") for record in group if record.seed in others
    ]
    return summary(differences)


def summary(values: Iterable[float]) -> dict[str, Any]:
    """Mean, spread and, from two values on, the half-width of a 95 % confidence interval of the mean."""
    found = list(values)
    if not found:
        return {"n": 0, "mean": None, "sd": None, "ci95": None, "values": []}
    sd = stdev(found) if len(found) > 1 else None
    t = _T.get(len(found) - 1, 1.96)
    half = None if sd is None else t * sd / math.sqrt(len(found))
    return {"n": len(found), "mean": mean(found), "sd": sd, "ci95": half, "values": found}


def _label(record: Record) -> str:
    """Runs of a sweep of learning rates are told apart by it."""
    label, rate = record.config["label"], record.config["learning_rate"]
    return f"{label}, lr {rate:g}" if "-lr" in record.config["name"] else label


def _baseline_label(by_label: dict[str, list[Record]]) -> str | None:
    for label, group in by_label.items():
        config = group[0].config
        if config["mechanism"] == BASELINE and not config["variant"] and "-lr" not in config["name"]:
            return label
    return None
