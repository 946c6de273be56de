"""Time and memory on a noisy machine, and a check whether the noise was too large.

A speed is a ratio: both sides alternate in one process, and the best of several rounds counts. A constantly busy
machine distorts even that. Two signs of it are recorded: the load before the start, and how much the ratios of three
separate runs of the same measurement differ.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from iha.records.host import load_average

RUNS = 3  # the rounds of a measurement are split into this many runs, to see how much their ratios differ
LARGEST_SPREAD = 0.15  # largest spread at which a ratio's second digit means something


@dataclass(frozen=True)
class Times:
    """Seconds of each side, round by round, in the order in which they were measured."""

    rounds: Mapping[str, list[float]]

    def best(self, side: str) -> float:
        return min(self.rounds[side])

    def ratio(self, side: str, against: str) -> float:
        return self.best(side) / self.best(against)

    def ratios(self, side: str, against: str) -> list[float]:
        """One ratio of bests for each third of the rounds; fewer where there are fewer than three rounds."""
        total = len(self.rounds[side])
        runs = min(RUNS, total)
        cuts = [round(total * run / runs) for run in range(runs + 1)]
        return [min(self.rounds[side][a:b]) / min(self.rounds[against][a:b]) for a, b in pairwise(cuts)]

    def spread(self, side: str, against: str) -> float | None:
        """The largest of those ratios over the smallest, minus 1: 0 when all agree. None when there is only one."""
        ratios = self.ratios(side, against)
        return max(ratios) / min(ratios) - 1 if len(ratios) > 1 else None


def take_turns(sides: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """Every side once in each round, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items():
            _synchronise()
            start = time.perf_counter()
            run()
            _synchronise()
            if number > 0:
                times[name].append(time.perf_counter() - start)
    return Times(times)


@dataclass(frozen=True)
class Quiet:
    """How quiet the machine was. `warnings` is empty when the ratios can be relied on."""

    load_before: float | None
    load_after: float | None
    largest_spread: float | None
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Watch:
    """Reads the load when it is made, before anything is measured, and judges at the end."""

    def __init__(self) -> None:
        self.load_before = load_average()

    def judge(self, spreads: Iterable[float | None]) -> Quiet:
        found = [value for value in spreads if value is not None]
        return Quiet(self.load_before, load_average(), max(found, default=None), self._warnings(found))

    def _warnings(self, spreads: list[float]) -> list[str]:
        cores, threads = os.cpu_count() or 1, torch.get_num_threads()
        warnings = []
        if self.load_before is not None and self.load_before + threads > cores + 0.5:
            warnings.append(
                f"the machine was busy before the start: load {self.load_before:.1f} on {cores} cores, of which the "
                f"bench uses {threads}. These ratios are not reliable."
            )
        apart = [value for value in spreads if value > LARGEST_SPREAD]
        if apart:
            warnings.append(
                f"{len(apart)} of {len(spreads)} ratios differ by more than {LARGEST_SPREAD:.0%} between runs, the "
                f"worst by {max(apart):.0%}. They are not reliable."
            )
        return warnings


@dataclass(frozen=True)
class Memory:
    """Bytes that a function allocated, beyond what was allocated before the call."""

    peak: int  # at once
    largest: int  # in one piece


def allocated(run: Callable[[], object]) -> Memory:
    """Every allocation of the CPU allocator while `run` runs, inside operators too, as the profiler reports them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    results = profiler.profiler.kineto_results
    events = sorted((e for e in results.events() if e.name() == "[memory]"), key=lambda event: event.start_ns())
    now = peak = largest = 0
    for event in events:
        now += event.nbytes()
        peak, largest = max(peak, now), max(largest, event.nbytes())
    return Memory(peak, largest)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
