"""Means over seeds with their spread, and Student's t for differences that are paired by seed."""

import math
from collections.abc import Iterable
from statistics import mean, stdev
from typing import Any


def summary(values: Iterable[float]) -> dict[str, Any]:
    """Mean, spread and, from two values on, the half-width of a 95 % confidence interval of the mean."""
    found = list(values)
    if not found:
        return {"n": 0, "mean": None, "sd": None, "ci95": None, "values": []}
    sd = stdev(found) if len(found) > 1 else None
    half = None if sd is None else students_t(0.05, len(found) - 1) * sd / math.sqrt(len(found))
    return {"n": len(found), "mean": mean(found), "sd": sd, "ci95": half, "values": found}


def paired_test(differences: Iterable[float]) -> dict[str, Any]:
    """`summary`, the two-sided p of Student's paired t test, and how many differences are below zero.

    Without spread, as with a single seed, there is no t and no p.
    """
    found = summary(differences)
    t = None if not found["sd"] else found["mean"] / (found["sd"] / math.sqrt(found["n"]))
    p = None if t is None else two_sided_p(t, found["n"] - 1)
    return found | {"t": t, "p": p, "below_zero": sum(value < 0 for value in found["values"])}


def two_sided_p(t: float, degrees: int) -> float:
    """P(|T| >= |t|) for whole degrees of freedom: the finite sums 26.7.3 and 26.7.4 of Abramowitz and Stegun."""
    if degrees < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, got {degrees}")
    angle = math.atan2(abs(t), math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, degrees + 1, 2):  # the term of cos^(k - 2)
        total += term
        term *= cosine**2 * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 1 - inside


def students_t(p: float, degrees: int) -> float:
    """The t whose two-sided p this is, by bisection."""
    low, high = 0.0, 1.0
    while two_sided_p(high, degrees) > p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, degrees) > p else (low, middle)
    return high
