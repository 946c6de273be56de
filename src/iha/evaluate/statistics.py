"""Average ranks and paired differences."""

from collections.abc import Mapping, Sequence

import numpy as np


def average_ranks(table: Mapping[str, Sequence[float | None]]) -> dict[str, float | None]:
    """Each model's mean rank over the metrics that it reports (None: not reported); 1 is best, ties share their mean.

    A metric is ranked among the models that report it.
    """
    widths = {len(row) for row in table.values()}
    if len(widths) > 1:
        raise ValueError(f"rows of different lengths cannot be ranked: {sorted(widths)}")
    ranks: dict[str, list[float]] = {name: [] for name in table}
    for column in range(widths.pop() if widths else 0):
        reported = {name: value for name, row in table.items() if (value := row[column]) is not None}
        for name, value in reported.items():
            better = sum(other > value for other in reported.values())
            same = sum(other == value for other in reported.values())
            ranks[name].append(better + (same + 1) / 2)
    return {name: sum(r) / len(r) if r else None for name, r in ranks.items()}


def paired_interval(
    ours: Sequence[Sequence[float]],
    theirs: Sequence[Sequence[float]],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Paired bootstrap interval of the mean difference: questions are drawn with replacement, each with both scores.

    Scores come in groups, one per task. The difference is the mean of the groups' means; each is resampled separately.
    """
    if [len(group) for group in ours] != [len(group) for group in theirs] or not ours or not all(map(len, ours)):
        raise ValueError("paired scores must be of the same questions, and there must be some")
    rng = np.random.default_rng(seed)
    drawn = np.zeros(resamples)
    for a, b in zip(ours, theirs, strict=True):
        difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)  # (questions,)
        n = len(difference)
        block = max(1, 2_000_000 // n)  # resamples at a time: (block, n) questions
        for start in range(0, resamples, block):
            chosen = rng.integers(n, size=(min(block, resamples - start), n))
            drawn[start : start + len(chosen)] += difference[chosen].mean(axis=1)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(drawn / len(ours), [tail, 100 - tail])
    return float(low), float(high)
