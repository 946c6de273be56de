"""`iha bench trainer`: what data, logging and checkpoints cost."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in
from iha.cli.progress import bars


def trainer(
    recipe: Annotated[Path, typer.Argument(help="What is trained.")] = Path("recipes/laptop-1m.yaml"),
    overrides: Annotated[list[str] | None, typer.Argument(help="Any key of it.")] = None,
    steps: Annotated[int, typer.Option(help="Of trainer and bare loop each.")] = 220,
    corpus: Annotated[str, typer.Option(help="Sizes of corpora for the loader, in MB.")] = "1,1024",
    first_step: Annotated[bool, typer.Option(help="Measure the time to the first step.")] = True,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("out/bench"),
    as_json: AsJson = False,
) -> None:
    """Tokens per second of the trainer against a bare loop, memory of the loader, time to the first step."""
    from iha.bench.trainer import Settings, run
    from iha.report.training import trainer_table

    sizes = tuple(int(size) for size in corpus.split(",") if size)
    settings = Settings(str(recipe), steps, tuple(overrides or ()), sizes, first_step)
    with results_in(out) as directory, bars() as progress:
        record = run(settings, directory / "trainer.json", command_line(), progress)
    if as_json:
        print_record(record)
    else:
        trainer_table(record.results).print()
