"""`iha plan`: what a recipe would take."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.output import AsJson


def plan(
    recipe: Annotated[Path, typer.Argument(help="A recipe, e.g. recipes/pretrain-2.4b.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Any key of it, e.g. parallel.micro_batch=4.")] = None,
    gpus: Annotated[int, typer.Option(help="How many.")] = 128,
    gpu: Annotated[str, typer.Option(help="a100, h100, h200 or b200.")] = "h200",
    mfu: Annotated[float, typer.Option(help="Share of the peak FLOP/s that training reaches.")] = 0.4,
    mechanisms: Annotated[str, typer.Option(help="Comma-separated; all five of the paper when not given.")] = "",
    out: Annotated[Path, typer.Option(help="Where plan.json and plan.md go.")] = Path("out/plan"),
    json: AsJson = False,
) -> None:
    """Memory per GPU, FLOPs and days of a training run, from its real sharded step on fake tensors."""
    from dataclasses import asdict

    from iha.cli.invocation import command_line
    from iha.cli.output import print_record, results_in
    from iha.cli.progress import bars
    from iha.models.field_checks import ATTENTIONS
    from iha.records import Record, write_record, write_text
    from iha.report.plan import record_table
    from iha.train import plan as planning
    from iha.train.recipe import read_recipe

    settings = read_recipe(recipe, overrides or [])
    wanted = tuple(mechanisms.split(",")) if mechanisms else ATTENTIONS
    config = {"recipe": settings.as_dict(), "gpus": gpus, "gpu": gpu, "mfu": mfu, "mechanisms": list(wanted)}
    with results_in(out) as directory, bars() as progress:
        record = Record.new("train-plan", command=command_line(), config=config, seed=None)
        plans = planning.plan(settings, gpus, gpu, mfu=mfu, attentions=wanted, progress=progress)
        record = record.finished([asdict(each) for each in plans])
        write_record(directory / "plan.json", record)
        table = record_table(record)
        write_text(directory / "plan.md", table.markdown())
    print_record(record) if json else table.print()
