"""`iha experiment`: the paper's main experiment, to scale."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iha.cli.train import STOPPED

if TYPE_CHECKING:
    from iha.experiment.plan import Run


def scale_model(
    changes: Annotated[
        list[str] | None, typer.Argument(help="Changes of every recipe, e.g. data.context=1024.")
    ] = None,
    size: Annotated[str, typer.Option(help="quick, small, medium, 160m or 2.4b.")] = "small",
    mechanisms: Annotated[
        str, typer.Option(help="Comma-separated; the paper's five when not given.")
    ] = "global,global_local,talking_heads,differential,iha",
    variants: Annotated[str, typer.Option(help="Ablations of IHA, comma-separated, or 'all'.")] = "",
    phases: Annotated[str, typer.Option(help="Of pretrain, adapt and tune, comma-separated.")] = "pretrain,adapt,tune",
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0",
    learning_rates: Annotated[str, typer.Option(help="A sweep of pre-training, comma-separated.")] = "",
    rates: Annotated[
        str, typer.Option(help="Peak learning rates of pre-training, e.g. global=2e-3,iha=4e-3; else the recipe's.")
    ] = "",
    length: Annotated[float | None, typer.Option(help="Steps, in multiples of the recipes'.")] = None,
    recipes: Annotated[Path, typer.Option(help="Where pretrain.yaml, adapt.yaml and tune.yaml are.")] = Path(
        "recipes/scale-model"
    ),
    speed: Annotated[float, typer.Option(help="Tokens per second to plan with.")] = 5000.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    runs: Annotated[Path, typer.Option(help="Run directories: checkpoints, data, exports.")] = Path("out/scale-model"),
    out: Annotated[Path, typer.Option(help="The small records, one per run, and the comparison.")] = Path(
        "results/scale-model"
    ),
) -> None:
    """Train the paper's five mechanisms on one backbone and the same data, and compare them.

    Prints its plan first. If it is killed, the same command resumes it.
    """
    from iha.experiment.plan import Settings, plan
    from iha.experiment.variants import ABLATIONS

    words = [w for w in (v.strip() for v in variants.split(",")) if w]
    settings = Settings(
        size, tuple(mechanisms.split(",")), tuple(ABLATIONS) if words == ["all"] else tuple(words),
        tuple(phases.split(",")), tuple(numbers(seeds, int)), tuple(numbers(learning_rates, float)), _rates(rates),
        length, tuple(changes or ()),
    )  # fmt: skip
    planned = plan(settings, recipes, runs)
    run_planned(planned, runs, out, {"size": size, "changes": list(changes or [])}, speed, dry_run)


def run_planned(
    planned: "Sequence[Run]", runs: Path, out: Path, config: dict[str, Any], speed: float, dry_run: bool
) -> None:
    """Print the plan, make its runs, compare all runs that have been made, and print the comparison."""
    from contextlib import nullcontext
    from math import isfinite

    from iha.cli.invocation import command_line
    from iha.cli.output import results_in
    from iha.cli.progress import bars
    from iha.cli.startup import fast_training
    from iha.experiment.compare import compare_all, read_runs
    from iha.experiment.run import StoppedError, run_all
    from iha.records import Record, write_record
    from iha.report.scale_model import phase_tables, plan_table

    if not (isfinite(speed) and speed > 0):
        raise ValueError(f"--speed must be a positive number of tokens per second, got {speed}")
    with results_in(runs) if not dry_run else nullcontext(), results_in(out) if not dry_run else nullcontext():
        plan_table(planned, speed).print()
    if dry_run:
        return
    fast_training()
    begun = Record.new("scale-model", command=command_line(), config=config)
    try:
        with bars() as progress:
            run_all(planned, runs, out, command=command_line(), progress=progress)
    except StoppedError as stopped:
        typer.echo(str(stopped), err=True)
        raise typer.Exit(STOPPED) from None
    compared = compare_all(read_runs(out))
    write_record(out / "comparison.json", begun.finished(compared))
    for phase in compared.values():
        for table in phase_tables(phase):
            table.print()


def numbers(text: str, kind: type) -> list:
    try:
        return [kind(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ValueError(f"expected {kind.__name__}s separated by commas, got {text!r}") from None


def _rates(text: str) -> tuple[tuple[str, float], ...]:
    pairs = [word.partition("=") for word in text.split(",") if word.strip()]
    if any(not separator for _, separator, _ in pairs):
        raise ValueError(f"--rates must be like global=2e-3,iha=4e-3, got {text!r}")
    return tuple((name.strip(), *numbers(rate, float)) for name, _, rate in pairs)
