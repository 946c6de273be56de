"""The theorems: what was built, run and counted."""

from collections.abc import Sequence
from html import escape
from typing import Any

from iha.records import Column, Table
from iha.report.page.results import Results
from iha.report.page.section import Figure, Missing, Section, Text

KIND = "verify"
COMMAND = "iha verify"


def theory_section(results: Results) -> Section:
    section = Section("theory", "Theorems")
    section.paragraph(
        "Every theorem of the paper is a construction here: its weights are built, the operator runs on them, the "
        "output is compared with what the theorem promises, and the parameters are counted."
    )
    found = results.best(KIND)
    if found is None:
        section.add(Missing("the checks of the theorems", COMMAND))
        return section
    claims = found.record.results["claims"]
    theorems = list(dict.fromkeys(claim["theorem"] for claim in claims))
    items = "".join(_card(theorem, [c for c in claims if c["theorem"] == theorem]) for theorem in theorems)
    section.add(Text(f'<ul class="gallery">{items}</ul>'))
    section.add(Figure(claims_table(claims), found.record.command))
    return section


def _card(theorem: str, claims: Sequence[dict[str, Any]]) -> str:
    held = [claim for claim in claims if claim["verdict"].startswith("holds")]
    errors = [claim["error"] for claim in held if isinstance(claim["error"], int | float)]
    worst = f" Largest error where it should be zero: {max(errors):.1e}." if errors else ""
    failed = sum(claim["verdict"] == "FAILS" for claim in claims)
    state = f'<span class="verdict fails">{failed} unexpected</span>' if failed else "as expected"
    return (
        f"<li><h3>{escape(theorem)}</h3><p>{len(held)} of {len(claims)} statements hold as checked; all {state}."
        f"{escape(worst)}</p></li>"
    )


def claims_table(claims: Sequence[dict[str, Any]]) -> Table:
    columns: list[str | Column] = ["statement", "where", "how it was checked", Column("error", "right"), "verdict"]
    table = Table("What the paper states, and what was found", columns)
    theorem = None
    for claim in claims:
        if claim["theorem"] != theorem:
            theorem = claim["theorem"]
            table.add_section(theorem)
        error = claim["error"]
        shown = f"{error:.1e}" if isinstance(error, int | float) else error
        table.add([claim["claim"], claim["where"], claim["checked"], shown, claim["verdict"]])
    return table
