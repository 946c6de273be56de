"""Time and memory as they are, measured so that a noisy machine does not decide.

A speed is a ratio: both sides in one process, taking turns, the best of several.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile


def best_seconds(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best time of each side; they take turns, after one round that does not count."""
    best = dict.fromkeys(sides, float("inf"))
    for turn in range(repeats + 1):
        for name, run in sides.items():
            _synchronise()
            start = time.perf_counter()
            run()
            _synchronise()
            if turn > 0:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


@dataclass(frozen=True)
class Memory:
    """Bytes that a function allocated on top of what was there."""

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
