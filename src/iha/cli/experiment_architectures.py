"""`iha experiment architectures`: IHA in an encoder, an encoder–decoder and on images."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.experiment import numbers


def architectures(
    tasks: Annotated[str, typer.Option(help="Of masked-text, dates and digits, comma-separated.")] = (
        "masked-text,dates,digits"
    ),
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    rates: Annotated[str, typer.Option(help="Learning rates to choose from, comma-separated.")] = "2e-3,6e-3",
    steps: Annotated[int | None, typer.Option(help="Of each run; the task's when not given.")] = None,
    out: Annotated[Path, typer.Option(help="One record per task.")] = Path("results/architectures"),
) -> None:
    """Train each architecture on a small real task, beside a multi-head twin of equal FLOPs.

    Needs no download; the digits need scikit-learn.
    """
    from iha.cli.invocation import command_line
    from iha.cli.output import results_in
    from iha.cli.progress import bars
    from iha.cli.startup import fast_training
    from iha.experiment.architectures import compare
    from iha.records import write_record
    from iha.report.architectures import architectures_table

    records = []
    fast_training()
    with results_in(out), bars() as progress:
        for task in tasks.split(","):
            record = compare(
                task, command=command_line(), seeds=numbers(seeds, int), rates=numbers(rates, float), steps=steps,
                progress=progress,
            )  # fmt: skip
            write_record(out / f"{task}.json", record)
            records.append(record)
    architectures_table(records).print()
