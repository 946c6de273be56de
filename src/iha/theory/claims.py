"""What was claimed, what was checked, and the verdict: one row of the table that `iha verify` prints."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

from torch import Tensor

from iha.theory.errata import errata

_DOES_NOT_HOLD = {"wrong": "false as printed", "misprint": "misprint", "open": "left open: fails"}
MACHINE = 1e-12  # "exact" for float64 sums of a few hundred terms of order one


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or its correction, tested on the operator.

    `expected` "true": the statement should hold, so a failure is ours (or a new erratum) and the run fails.
    `expected` "false": the statement does not hold, as an entry of the errata says; `error` is then by how much, and
    the run fails if it turns out to hold, because then the entry is wrong. Whether the statement is the paper's own
    or only one way to fill a gap in it follows from the class of the entry.
    """

    theorem: str  # the name `--only` takes
    claim: str
    where: str  # in the paper
    checked: str
    passed: bool
    expected: Literal["true", "false"] = "true"
    error: float | None = None
    formula: int | None = None  # parameters, by the formula
    allocated: int | None = None  # parameters, numel of the tensors built
    erratum: str | None = None
    limited: bool = False  # true, but weaker than the paper suggests

    @property
    def verdict(self) -> str:
        if not self.passed:
            return "FAILS"
        if self.erratum is None:
            return "holds"
        kind = errata()[self.erratum].kind
        if self.expected == "false":
            return f"{_DOES_NOT_HOLD[kind]} ({self.erratum})"
        how = "within limits" if self.limited else "completed" if kind == "open" else "corrected"
        return f"holds, {how} ({self.erratum})"

    def as_json(self) -> dict:
        row = dataclasses.asdict(self) | {"verdict": self.verdict}
        if self.error is not None and not math.isfinite(self.error):
            row["error"] = str(self.error)  # JSON has no infinity
        return row


def holds(
    theorem: str,
    claim: str,
    where: str,
    checked: str,
    *,
    error: float | None = None,
    tolerance: float = 0.0,
    formula: int | None = None,
    allocated: int | None = None,
    condition: bool = True,
    erratum: str | None = None,
    limited: bool = False,
) -> Claim:
    """A statement that should hold: error within tolerance, formula equal to what was allocated, condition true."""
    exact = error is None or error <= tolerance  # NaN fails
    passed = exact and formula == allocated and condition
    return Claim(theorem, claim, where, checked, passed, "true", error, formula, allocated, erratum, limited)


def refuted(
    theorem: str,
    claim: str,
    where: str,
    checked: str,
    *,
    erratum: str,
    error: float | None = None,
    at_least: float = 0.0,
    formula: int | None = None,
    allocated: int | None = None,
    condition: bool = True,
) -> Claim:
    """A statement that does not hold: the error is at least this large, or the count differs."""
    wrong = (error is None or error >= at_least) and (formula is None or formula != allocated)
    return Claim(theorem, claim, where, checked, wrong and condition, "false", error, formula, allocated, erratum)


def summed(counts: list[tuple[int, int]]) -> "ParameterCounts":
    """(formula, allocated) of several sizes as one row: their sums, and the condition that every pair agrees."""
    agree = all(formula == allocated for formula, allocated in counts)
    return {"formula": sum(f for f, _ in counts), "allocated": sum(a for _, a in counts), "condition": agree}


class ParameterCounts(TypedDict):
    formula: int
    allocated: int
    condition: bool


def worst(errors: Iterable[float]) -> float:
    """The largest; NaN if any is (Python's `max` would drop it, and a claim would hold on what was never computed)."""
    found = list(errors)
    return math.nan if any(math.isnan(e) for e in found) else max(found)


def smallest(errors: Iterable[float]) -> float:
    """The smallest; NaN if any is."""
    return -worst(-e for e in errors)


def largest_error(got: Tensor, want: Tensor) -> float:
    """Largest absolute difference; broadcasting here would hide a wrong shape."""
    if got.shape != want.shape:
        raise ValueError(f"shapes differ: {tuple(got.shape)} and {tuple(want.shape)}")
    return (got - want).abs().max().item() if got.numel() else 0.0
