"""`iha experiment measure`: what the scale model's finished runs can do, at lengths up to eight times the window."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.experiment import numbers
from iha.cli.invocation import command_line


def measure(
    names: Annotated[
        list[str] | None, typer.Argument(help="Runs, e.g. pretrain-iha-s0; all that have an export when not given.")
    ] = None,
    lengths: Annotated[str, typer.Option(help="Of the retrieval tasks in tokens.")] = "256,512,1024,2048,4096",
    tasks: Annotated[str, typer.Option(help="Retrieval tasks, comma-separated; all when not given.")] = "",
    samples: Annotated[int, typer.Option(help="Of each retrieval task and length.")] = 32,
    puzzles: Annotated[int, typer.Option(help="Of each kind, within the window.")] = 128,
    problems: Annotated[int, typer.Option(help="Word problems, with 16 samples each.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the questions and of sampling.")] = 1,
    data: Annotated[Path | None, typer.Option(help="RULER's essays, for the tasks that need them.")] = None,
    runs: Annotated[Path, typer.Option(help="Run directories with their exports.")] = Path("out/scale-model"),
    out: Annotated[Path, typer.Option(help="The records of the runs; measured/ goes below it.")] = Path(
        "results/scale-model"
    ),
) -> None:
    """Retrieval by length before and after adaptation, puzzles by kind, P@1 and Maj@16 before and after fine-tuning.

    Runs that have been measured are skipped.
    """
    from iha.cli.progress import bars
    from iha.cli.startup import fast_training
    from iha.experiment.measure import Settings, measure_all
    from iha.report.scale_model_measured import measured_tables

    chosen = {"tasks": tuple(tasks.split(","))} if tasks else {}
    settings = Settings(
        tuple(numbers(lengths, int)), samples=samples, puzzles=puzzles, problems=problems, seed=seed,
        data=None if data is None else str(data), **chosen,
    )  # fmt: skip
    fast_training()
    with bars() as progress:
        records = measure_all(out, runs, settings, command=command_line(), names=names or (), progress=progress)
    for table in measured_tables(records):
        table.print()
