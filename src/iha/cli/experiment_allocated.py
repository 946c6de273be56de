"""`iha experiment allocated`: pseudo-heads where they pay, beside the same number everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.experiment import numbers, run_planned


def allocated(
    changes: Annotated[list[str] | None, typer.Argument(help="Changes of the recipe, e.g. data.batch=8.")] = None,
    share: Annotated[float, typer.Option(help="Of the source's FLOPs of attention and mixing that are kept.")] = 0.5,
    seeds: Annotated[
        str, typer.Option(help="Comma-separated; pretrain-iha-p4-token-index must be there for each.")
    ] = "0",
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
    """Reduce a pre-trained model to a share of its FLOPs, by allocation and uniformly, and train both on.

    If it is killed, the same command resumes it.
    """
    from iha.experiment.allocated import Allocation, plan_allocation

    settings = Allocation(share, tuple(numbers(seeds, int)), length, tuple(changes or ()))
    planned = plan_allocation(settings, recipes, runs)
    run_planned(planned, runs, out, {"study": "allocation", "changes": list(changes or [])}, speed, dry_run)
