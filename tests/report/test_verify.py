"""The table and the summary of `iha verify`, from a record that was not computed here."""

import io

import pytest

from iha.records import Record
from iha.report.verify import claims_table, row_style, summary
from iha.theory.claims import Claim, holds, refuted
from iha.theory.errata import errata

CLAIMS = [
    holds("superset", "included", "Theorem 2", "four sizes", error=1.7e-15, tolerance=1e-12),
    holds("superset", "counted", "(ours)", "one size", formula=1200, allocated=1200, erratum="E2"),
    refuted("strictness", "nonlinear", "appendix", "gap", erratum="E1", error=0.5, at_least=0.1),
    refuted("strictness", "also nonlinear", "appendix", "gap", erratum="E1", error=0.5, at_least=0.1),
    refuted("polynomial", "transposed", "appendix", "run", erratum="E7", error=0.5, at_least=0.1),
    refuted("cpm3", "padded", "section 4.3", "run", erratum="E5", error=0.5, at_least=0.1),
    holds("cpm3", "broken", "nowhere", "run", error=1.0, tolerance=0.0),
]


def record(claims: list[Claim]) -> Record:
    results = {
        "failed": sum(not claim.passed for claim in claims), "claims": [claim.as_json() for claim in claims],
        "errata": [entry.as_json() for entry in errata().values()], "gallery": {},
    }  # fmt: skip
    return Record("verify", "iha verify", {}, 0, {}, {}, None, "2026-01-01T00:00:00+00:00", 1.0, results)


def test_classes_are_counted_separately_and_failures_apart() -> None:
    assert summary(record(CLAIMS)) == (
        "7 checks: 2 hold, 2 wrong in a proof, a statement or a number (1 errata), 1 misprints (1 errata), "
        "1 left open (1 errata), 1 fail"
    )


def test_rows_sections_and_styles() -> None:
    rows = claims_table(record(CLAIMS)).rows
    assert [row for row in rows if isinstance(row, str)] == ["superset", "strictness", "polynomial", "cpm3"]
    cells = [row for row in rows if not isinstance(row, str)]
    assert cells[0] == ["included (Theorem 2)", "four sizes", "1.7e-15", "holds"]
    assert cells[1] == ["counted (ours)", "one size; parameters 1,200 = 1,200 allocated", "–", "holds, corrected (E2)"]
    styles = [row_style(row) for row in cells]
    assert styles == ["green", "green", "yellow", "yellow", "yellow", "cyan", "bold red"]


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_cut(width, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    file = io.StringIO()
    claims_table(record(CLAIMS)).print(file, row_style)
    assert "…" not in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) <= width
