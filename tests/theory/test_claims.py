"""The verdicts themselves: a claim that is off must fail, and an erratum that turns out true must fail too."""

import math

import pytest
import torch

from iha.theory.claims import holds, largest_error, refuted
from iha.theory.memory import available_bytes, require


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (holds("t", "c", "w", "x", error=1e-13, tolerance=1e-12), "holds"),
        (holds("t", "c", "w", "x", error=1e-11, tolerance=1e-12), "FAILS"),
        (holds("t", "c", "w", "x", error=math.nan, tolerance=1e-12), "FAILS"),
        (holds("t", "c", "w", "x", formula=5, allocated=5, erratum="E5"), "holds, corrected (E5)"),
        (holds("t", "c", "w", "x", formula=5, allocated=6), "FAILS"),
        (holds("t", "c", "w", "x", condition=False), "FAILS"),
        (holds("t", "c", "w", "x", erratum="E6", limited=True), "holds, within limits (E6)"),
        (refuted("t", "c", "w", "x", error=0.5, at_least=0.1, erratum="E1"), "false as printed (E1)"),
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
        require(need, "a thing")
    require(1, "a thing")
