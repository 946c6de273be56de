"""`iha verify`: the theorems of the paper, running."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def verify(
    only: Annotated[
        str | None,
        typer.Option(help="One check: superset, strictness, polynomial, bound, cpm3, patterns, flops or tables."),
    ] = None,
    n_max: Annotated[int | None, typer.Option(help="Size of CPM-3 (default: several, 1 to 16).")] = None,
    k: Annotated[int | None, typer.Option(help="Powers in the filter bank (default: several, 1 to 16).")] = None,
    train: Annotated[bool, typer.Option("--train", help="Also train IHA and MHA on both tasks: minutes.")] = False,
    seed: Annotated[int, typer.Option(help="Of the random graphs, weights and sequences.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the JSON and the pictures go.")] = Path("out/verify"),
) -> None:
    """Build every construction of the paper, run it, compare it with the truth and count its parameters.

    Exits with 1 if anything that should hold does not, or if something listed as an erratum turns out to be true.
    """
    from iha.theory import verify as theory
    from iha.theory.show import learned_table, show

    console = Console()
    if not console.is_terminal:
        console = Console(width=180)  # a log file has room for the table
    try:
        settings = theory.Settings(only, n_max, k, seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    started = time.perf_counter()
    columns = (SpinnerColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")

        def bar(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        claims = theory.collect(settings, bar)
        theory.write(out / "verify.json", theory.results(settings, claims, started))
        pictures = theory.pictures(out, settings.names(), bar)
        runs = theory.learn(settings, out, bar) if train else []
    show(console, claims)
    if runs:
        console.print(learned_table(runs))
    console.print(f"{time.perf_counter() - started:.0f} s; {out / 'verify.json'}; {pictures}", style="dim")
    if theory.failures(claims):
        raise typer.Exit(1)
