"""Runs side by side: at equal tokens, equal FLOPs and equal time, over seeds, with differences paired by seed.

Runs of a sweep of learning rates are shorter and are compared among themselves only.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from iha.experiment.plan import KIND, PHASES, run_name
from iha.experiment.statistics import paired_test, summary
from iha.experiment.variants import CONTROLS
from iha.records import Record, read_record

BASELINE, DEFAULT = "global", "iha"  # what mechanisms are compared with, and what ablations change
LEVELS = (0.5, 0.95)  # accuracies for which the first time they are reached is recorded
_OF_A_SWEEP = re.compile(r"-lr[^-]+(-\d+)?-s\d+$")  # 1e-05 has a hyphen


SPEED, SPEED_KIND = "speed.json", "scale-model-speed"  # of experiment/speed.py, beside the runs


def read_runs(directory: Path) -> list[Record]:
    runs = [read_record(path, KIND) for path in sorted(directory.glob("*-s*.json"))]
    measured = directory / SPEED
    return at_measured_speed(runs, read_record(measured, SPEED_KIND)) if measured.is_file() else runs


def at_measured_speed(runs: Sequence[Record], measured: Record) -> list[Record]:
    """Pre-training with the speeds measured in turns: those that runs report of themselves are not comparable."""
    speeds = measured.results["tokens_per_second"]
    return [
        replace(run, results=run.results | {"tokens_per_second": {"median": speeds[run.config["label"]]}})
        if run.config["phase"] == "pretrain" and run.config["label"] in speeds
        else run
        for run in runs
    ]


def compare_all(records: Sequence[Record]) -> dict[str, Any]:
    """Every phase that has runs."""
    phases = dict.fromkeys(record.config["phase"] for record in records)
    return {phase: compare(records, phase) for phase in sorted(phases, key=(*PHASES, "upcycle", "allocate").index)}


def compare(records: Sequence[Record], phase: str = "pretrain") -> dict[str, Any]:
    """One row per mechanism and variant of a phase, and the sweep of learning rates."""
    runs = [record for record in records if record.config["phase"] == phase]
    if not runs:
        raise ValueError(f"no runs of phase {phase!r}")
    swept = [record for record in runs if is_swept(record.config["name"])]
    kept = [record for record in runs if not is_swept(record.config["name"])]
    found: dict[str, Any] = {"phase": phase, "rows": [], "sweep": sweep(swept, kept)}
    if not kept:
        return found
    source = headline(kept)
    plain = [record for record in kept if not record.config["variant"]] or kept
    budget = {
        "tokens": min(record.config["tokens"] for record in plain),
        "flops": min(total_flops(record) for record in plain),
        "seconds": min(training_seconds(record) for record in plain),
    }
    by_label: dict[str, list[Record]] = defaultdict(list)
    for record in kept:
        by_label[record.config["label"]].append(record)
    by_name = {record.config["name"]: record for record in kept}
    groups = (sorted(group, key=lambda record: record.seed or 0) for group in by_label.values())
    return found | {"source": source, "budget": budget, "rows": [_row(g, by_name, source, budget) for g in groups]}


def _row(group: Sequence[Record], by_name: dict[str, Record], source: str, budget: dict[str, float]) -> dict[str, Any]:
    config, results = group[0].config, group[0].results
    baseline = [(record, by_name.get(baseline_of(record))) for record in group]
    default = [(record, by_name.get(f"{config['phase']}-{DEFAULT}-s{record.seed}")) for record in group]
    control = [(record, by_name.get(control_of(record))) for record in group]
    return {
        "label": config["label"], "mechanism": config["mechanism"], "variant": config["variant"],
        "learning_rate": config["learning_rate"], "tokens": config["tokens"],
        "seeds": [record.seed for record in group],
        "parameters": results["parameters"], "flops_per_token": results["flops_per_token"],
        "tokens_per_second": mean(record.results["tokens_per_second"]["median"] for record in group),
        "peak_bytes": max(record.results["peak_bytes"] for record in group),
        "loss": {part: summary(final(record, part) for record in group) for part in parts(group)},
        "equal": {
            kind: summary(at_budget(record, kind, budget[kind], source) for record in group) for kind in budget
        },
        "accuracy": {name: summary(record.results["probe"][-1][name] for record in group) for name in probed(group)},
        "learned": {
            name: {str(level): [first_reach(record, name, level) for record in group] for level in LEVELS}
            for name in probed(group)
        },
        "paired": paired(baseline, source),
        "paired_accuracy": {name: paired_accuracy(baseline, name) for name in probed(group)},
        "paired_default": paired(default, source) if config["variant"] else None,
        "paired_parts": {part: paired(_with(baseline, part), part) for part in parts(group)},
        "paired_control": paired(control, source),
    }  # fmt: skip


def is_swept(name: str) -> bool:
    """Whether the run of this name belongs to a sweep of learning rates."""
    return _OF_A_SWEEP.search(name) is not None


def baseline_of(record: Record) -> str:
    """The name of the run that a run is compared with: global attention, or what the run's own record says."""
    return record.config.get("baseline") or f"{record.config['phase']}-{BASELINE}-s{record.seed}"


def control_of(record: Record) -> str:
    """The name of the run with one pseudo-head in the same window; of no run where there is no such control."""
    config = record.config
    if config["mechanism"] != DEFAULT or config["variant"] not in CONTROLS:
        return ""
    return run_name(config["phase"], DEFAULT, CONTROLS[config["variant"]], record.seed or 0)


def headline(group: Sequence[Record]) -> str:
    """The source whose loss is compared: real text where a phase trains on it."""
    common = parts(group)
    if not common:
        raise ValueError("these runs have no source in common whose loss could be compared")
    return "text" if "text" in common else common[0]


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


def at_budget(record: Record, kind: str, budget: float, source: str) -> float:
    """Validation loss at a number of tokens, FLOPs or seconds, interpolated linearly between validations."""
    per_token = {
        "tokens": 1.0,
        "flops": record.results["flops_per_token"],
        "seconds": 1 / record.results["tokens_per_second"]["median"],
    }[kind]
    return interpolated(record.results["validation"], source, budget / per_token)


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


Pairs = Sequence[tuple[Record, Record | None]]  # each with the run it is compared with, where that was made


def paired(pairs: Pairs, source: str) -> dict[str, Any]:
    """Loss minus that of the run with the same seed: same data, same order, same initial backbone, same length."""
    return paired_test(final(record, source) - final(other, source) for record, other in _comparable(pairs))


def paired_accuracy(pairs: Pairs, name: str) -> dict[str, Any]:
    return paired_test(
        record.results["probe"][-1][name] - other.results["probe"][-1][name]
        for record, other in _comparable(pairs)
        if name in other.results["probe"][-1]
    )


def _comparable(pairs: Pairs) -> list[tuple[Record, Record]]:
    return [
        (record, other)
        for record, other in pairs
        if other is not None and other.config["tokens"] == record.config["tokens"]
    ]


def _with(pairs: Pairs, part: str) -> Pairs:
    """Those whose other run has a loss on this part."""
    return [(record, other) for record, other in pairs if other is not None and part in other.results["validation"][-1]]


def sweep(swept: Sequence[Record], kept: Sequence[Record]) -> list[dict[str, Any]]:
    """Per mechanism: the loss at each learning rate, the best of them, and the rate that the other runs took."""
    by_mechanism: dict[str, list[Record]] = defaultdict(list)
    for record in swept:
        by_mechanism[record.config["mechanism"]].append(record)
    source = headline(swept) if swept else ""
    found = []
    for mechanism, group in by_mechanism.items():
        rates = {
            rate: summary(final(record, source) for record in group if record.config["learning_rate"] == rate)
            for rate in sorted({record.config["learning_rate"] for record in group})
        }
        best = min(rates, key=lambda rate: rates[rate]["mean"])
        plain = [record for record in kept if record.config["mechanism"] == mechanism and not record.config["variant"]]
        found.append(
            {
                "label": group[0].config["label"], "mechanism": mechanism, "source": source,
                "tokens": group[0].config["tokens"], "rates": [{"rate": r, "loss": loss} for r, loss in rates.items()],
                "best": best, "at_the_edge": len(rates) > 1 and best in (min(rates), max(rates)),
                "taken": sorted({record.config["learning_rate"] for record in plain}),
            }
        )  # fmt: skip
    return found
