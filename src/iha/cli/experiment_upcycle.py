"""`iha experiment upcycle`: does converting a trained model pay?"""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.experiment import numbers, run_planned


def upcycle(
    changes: Annotated[list[str] | None, typer.Argument(help="Changes of the recipe, e.g. data.batch=8.")] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="E.g. 'P=2, frozen'; several times for several; all when not given.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Comma-separated; pretrain-global must be there for each.")] = "0",
    length: Annotated[float, typer.Option(help="Steps, in multiples of those of pre-training.")] = 0.25,
    recipes: Annotated[Path, typer.Option(help="Where pretrain.yaml is.")] = Path("recipes/scale-model"),
    speed: Annotated[float, typer.Option(help="Tokens per second to plan with.")] = 5000.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    runs: Annotated[Path, typer.Option(help="Run directories of `iha experiment scale-model`.")] = Path(
        "out/scale-model"
    ),
    out: Annotated[Path, typer.Option(help="The records, one per run, and the comparison.")] = Path(
        "results/scale-model"
    ),
) -> None:
    """Convert the pre-trained model with global attention to IHA, and train both on, side by side.

    If it is killed, the same command resumes it.
    """
    from iha.experiment.upcycle import VARIANTS, Upcycling, plan_upcycling

    settings = Upcycling(tuple(variant or VARIANTS), tuple(numbers(seeds, int)), length, tuple(changes or ()))
    planned = plan_upcycling(settings, recipes, runs)
    run_planned(planned, runs, out, {"study": "upcycling", "changes": list(changes or [])}, speed, dry_run)
