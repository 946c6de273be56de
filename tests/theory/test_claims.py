"""The verdicts themselves: a claim that is off must fail, and an erratum that turns out true must fail too."""

import math

import pytest
import torch

from iha.records.host import available_bytes, require_bytes
from iha.theory.claims import holds, largest_error, refuted, smallest, summed, worst


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (holds("t", "c", "w", "x", error=1e-13, tolerance=1e-12), "holds"),
        (holds("t", "c", "w", "x", error=1e-11, tolerance=1e-12), "FAILS"),
        (holds("t", "c", "w", "x", error=math.nan, tolerance=1e-12), "FAILS"),
        (holds("t", "c", "w", "x", formula=5, allocated=5, erratum="E4"), "holds, corrected (E4)"),
        (holds("t", "c", "w", "x", erratum="E5"), "holds, completed (E5)"),
        (holds("t", "c", "w", "x", formula=5, allocated=6), "FAILS"),
        (holds("t", "c", "w", "x", condition=False), "FAILS"),
        (holds("t", "c", "w", "x", erratum="E6", limited=True), "holds, within limits (E6)"),
        (refuted("t", "c", "w", "x", error=0.5, at_least=0.1, erratum="E1"), "false as printed (E1)"),
        (refuted("t", "c", "w", "x", error=0.5, at_least=0.1, erratum="E7"), "misprint (E7)"),
        (refuted("t", "c", "w", "x", error=0.5, at_least=0.1, erratum="E21"), "left open: fails (E21)"),
        (refuted("t", "c", "w", "x", error=0.05, at_least=0.1, erratum="E1"), "FAILS"),
        (refuted("t", "c", "w", "x", error=math.nan, at_least=0.1, erratum="E1"), "FAILS"),
        (refuted("t", "c", "w", "x", formula=5, allocated=5, erratum="E1"), "FAILS"),
        (refuted("t", "c", "w", "x", formula=5, allocated=6, condition=False, erratum="E1"), "FAILS"),
    ],
)
def test_verdicts(claim, verdict: str) -> None:
    assert claim.verdict == verdict
    assert claim.passed == (verdict != "FAILS")


def test_infinite_errors_survive_json() -> None:
    import json

    row = holds("t", "c", "w", "x", error=math.inf, tolerance=1.0).as_json()
    assert json.loads(json.dumps(row, allow_nan=False))["error"] == "inf"


def test_errors_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(3,\)"):
        largest_error(torch.zeros(2, 3), torch.zeros(3))


def test_too_large_is_refused_with_the_number_of_bytes() -> None:
    need = 10 * available_bytes()
    with pytest.raises(ValueError, match=f"a thing needs about {need:,} bytes"):
        require_bytes(need, "a thing")
    require_bytes(1, "a thing")


def test_nan_is_never_dropped() -> None:
    assert worst([1.0, 3.0, 2.0]) == 3.0
    assert smallest([1.0, 3.0, 2.0]) == 1.0
    assert math.isnan(worst([1e-16, math.nan]))
    assert math.isnan(smallest([math.nan, 1.0]))


def test_counts_of_several_sizes_must_agree_one_by_one() -> None:
    assert summed([(1, 1), (2, 2)]) == {"formula": 3, "allocated": 3, "condition": True}
    assert summed([(1, 2), (2, 1)]) == {"formula": 3, "allocated": 3, "condition": False}
