"""`iha experiment speed`: the training steps of all mechanisms in turns."""

from pathlib import Path
from typing import Annotated

import typer


def speed(
    records: Annotated[Path, typer.Argument(help="Where the runs are recorded.")] = Path("results/scale-model"),
    runs: Annotated[Path, typer.Option(help="Where the runs were made: their data is there.")] = Path(
        "out/scale-model"
    ),
    rounds: Annotated[int, typer.Option(help="Turns of every mechanism; the best counts.")] = 9,
    threads: Annotated[int, typer.Option(help="Of torch, as in the runs.")] = 1,
) -> None:
    """Measure how fast each mechanism trains, in turns in one process: run it on a quiet machine."""
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.experiment.compare import SPEED
    from iha.experiment.speed import measure_speed
    from iha.records import write_record
    from iha.report.scale_model import speed_table

    with bars() as progress:
        record = measure_speed(records, runs, rounds=rounds, threads=threads, command=command_line(), progress=progress)
    write_record(records / SPEED, record)
    speed_table(record).print()
