"""`iha experiment inside`: the pseudo-heads of the scale model's finished runs."""

from pathlib import Path
from typing import Annotated

import typer


def inside(
    names: Annotated[
        list[str] | None, typer.Argument(help="Runs, e.g. pretrain-iha-s0; all with pseudo-heads when not given.")
    ] = None,
    sequences: Annotated[int, typer.Option(help="Held-out sequences of each source.")] = 2,
    runs: Annotated[Path, typer.Option(help="Run directories with their exports and data.")] = Path("out/scale-model"),
    out: Annotated[Path, typer.Option(help="The records of the runs; inside/ goes below it.")] = Path(
        "results/scale-model"
    ),
) -> None:
    """How far pseudo-heads have moved apart, how many are in use, and what removing one costs.

    Runs that have been looked into are skipped.
    """
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.experiment.inside import look_inside
    from iha.report.pseudo_heads import of_records, pseudo_heads_table

    with bars() as progress:
        records = look_inside(
            out, runs, command=command_line(), sequences=sequences, names=names or (), progress=progress
        )
    pseudo_heads_table(of_records(records)).print()
