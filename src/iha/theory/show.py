"""The table of `iha verify` in a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from iha.theory.claims import Claim
from iha.theory.errata import CLASSES, HEADINGS, errata
from iha.theory.learned import Run

COLOURS = {"holds": "green", "false": "yellow", "misprint": "yellow", "left": "cyan", "FAILS": "bold red"}


def verdict_text(claim: Claim) -> Text:
    return Text(claim.verdict, style=COLOURS[claim.verdict.split()[0].rstrip(",")])


def error_text(claim: Claim) -> str:
    if claim.error is None:
        return "–"
    return "0" if claim.error == 0 else f"{claim.error:.1e}"


def parameters_text(claim: Claim) -> str:
    if claim.formula is None:
        return "–"
    sign = "=" if claim.formula == claim.allocated else "≠"
    return f"{claim.formula:,} {sign} {claim.allocated:,}"


def claims_table(claims: list[Claim]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, title="What the paper claims, and what was found", title_justify="left", pad_edge=False
    )
    table.add_column("claim", ratio=5)
    table.add_column("where", ratio=3, style="dim")
    table.add_column("checked", ratio=6)
    table.add_column("largest\nerror", justify="right", no_wrap=True)
    table.add_column("parameters\nformula = allocated", justify="right", ratio=2)
    table.add_column("verdict", ratio=2)
    theorem = None
    for claim in claims:
        if claim.theorem != theorem:
            theorem = claim.theorem
            table.add_section()
            table.add_row(Text(theorem, style="bold"), "", "", "", "", "")
        table.add_row(
            Text(claim.claim),
            Text(claim.where),
            Text(claim.checked),
            error_text(claim),
            parameters_text(claim),
            verdict_text(claim),
        )
    return table


def summary(claims: list[Claim]) -> Text:
    failed = [claim for claim in claims if not claim.passed]
    passed = [claim for claim in claims if claim.passed]
    text = Text(f"{len(claims)} checks: {sum(claim.expected == 'true' for claim in passed)} hold, ")
    for kind in CLASSES:
        found = [c for c in passed if c.expected == "false" and errata()[c.erratum or ""].kind == kind]
        entries = len({claim.erratum for claim in found})
        text.append(f"{len(found)} {HEADINGS[kind]} ({entries} entries of docs/paper-errata.md), ")
    text.append(f"{len(failed)} fail", style="bold red" if failed else "green")
    return text


def learned_table(runs: list[Run]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, title="Learned: error after training, every seed", title_justify="left", pad_edge=False
    )
    for column, justify in (
        ("task", "left"),
        ("attention", "left"),
        ("heads", "right"),
        ("parameters", "right"),
        ("errors", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.kind, run.heads), []).append(run)
    for (task, kind, heads), group in groups.items():
        errors = "  ".join(f"{run.error:.3f}" for run in group)
        table.add_row(
            task, kind if kind == "MHA" else f"IHA, P = {heads}", str(heads), f"{group[0].parameters:,}", errors
        )
    return table


def show(console: Console, claims: list[Claim]) -> None:
    console.print(claims_table(claims))
    console.print(summary(claims))
