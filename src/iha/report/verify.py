"""The answer of `iha verify` in a terminal, from its record."""

from typing import Any

from iha.records import Column, Record, Table
from iha.theory.errata import CLASSES, HEADINGS

_COLOURS = {"holds": "green", "false": "yellow", "misprint": "yellow", "left": "cyan", "FAILS": "bold red"}


def claims_table(record: Record) -> Table:
    """One row per check, in sections by theorem."""
    columns: list[str | Column] = ["claim", "checked", Column("error", align="right", wrap=False), "verdict"]
    table = Table("What the paper claims, and what was found", columns)
    theorem = None
    for claim in record.results["claims"]:
        if claim["theorem"] != theorem:
            theorem = claim["theorem"]
            table.add_section(theorem)
        where = claim["where"].removeprefix("(").removesuffix(")")
        table.add([f"{claim['claim']} ({where})", _checked(claim), _error(claim), claim["verdict"]])
    return table


def row_style(row: list[str]) -> str:
    """By the first word of the verdict."""
    return _COLOURS[row[-1].split()[0].rstrip(",:")]


def summary(record: Record) -> str:
    """How many checks hold, and how many do not, by class of the erratum. A failed check is an error of ours."""
    claims, kinds = record.results["claims"], {entry["id"]: entry["kind"] for entry in record.results["errata"]}
    passed = [claim for claim in claims if claim["passed"]]
    parts = [f"{sum(claim['expected'] == 'true' for claim in passed)} hold"]
    for kind in CLASSES:
        found = [c["erratum"] for c in passed if c["expected"] == "false" and kinds[c["erratum"]] == kind]
        parts.append(f"{len(found)} {HEADINGS[kind]} ({len(set(found))} errata)")
    return f"{len(claims)} checks: {', '.join(parts)}, {record.results['failed']} fail"


def _checked(claim: dict[str, Any]) -> str:
    if claim["formula"] is None:
        return claim["checked"]
    sign = "=" if claim["formula"] == claim["allocated"] else "≠"
    return f"{claim['checked']}; parameters {claim['formula']:,} {sign} {claim['allocated']:,} allocated"


def _error(claim: dict[str, Any]) -> str | None:
    if claim["error"] is None:
        return None
    return "0" if claim["error"] == 0 else f"{float(claim['error']):.1e}"
