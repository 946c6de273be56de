"""`iha train`: a recipe in, a run directory out."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

STOPPED = 143  # what a shell reports for a process that SIGTERM has ended


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, e.g. recipes/laptop-1m.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Any key of it, e.g. schedule.steps=100 model.attention=global.")
    ] = None,
    init_from: Annotated[
        str | None, typer.Option(help="Weights to start from: a directory of `iha export` or `iha convert`.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that tokenise, if the data is not prepared yet.")] = 2,
    out: Annotated[Path | None, typer.Option(help="The run directory; out/train/NAME when not given.")] = None,
) -> None:
    """Train a model, or resume the run in the run directory. Under torchrun, on all its processes."""
    from iha.cli.invocation import command_line
    from iha.cli.low_precision import guard_low_precision
    from iha.cli.progress import bars
    from iha.cli.startup import fast_training, without_collection
    from iha.records import silent
    from iha.train.ahead import tokenizer_ahead
    from iha.train.prepare import data_directory, lacks_tokenizer
    from iha.train.recipe import read_recipe

    changes = [*(overrides or []), *([f"model.init_from={init_from}"] if init_from else [])]
    settings = read_recipe(recipe, changes)
    guard_low_precision(settings.parallel.precision)
    directory = out or Path("out/train") / settings.name
    first = os.environ.get("RANK", "0") == "0"
    ahead: AbstractContextManager[Callable[[], str | None]] = nullcontext(lambda: None)
    if first and lacks_tokenizer(settings.data, data_directory(settings, directory)):
        ahead = tokenizer_ahead(settings.data, settings.seed)
    with ahead as trained, bars() as progress:
        with without_collection():
            from iha.train import loop
        fast_training()
        shown = progress if first else silent
        outcome = loop.train(
            settings, directory, command=command_line(), workers=workers, trained=trained, progress=shown
        )
    if first:
        _show(outcome, directory, settings.name)
    if not outcome.finished:
        raise typer.Exit(STOPPED)


def _show(outcome: "loop.Outcome", directory: Path, name: str) -> None:  # type: ignore[name-defined]  # noqa: F821
    from iha.report.training import loss_curve
    from iha.train.metrics import FILE, read_metrics

    try:
        loss_curve(read_metrics(directory / FILE), name, directory / "loss.svg")
    except ImportError:
        typer.echo("no loss curve: pip install 'iha[report]'", err=True)
    results = outcome.results
    validation = ", ".join(f"{source} {loss:.4f}" for source, loss in results.get("validation", {}).items())
    state = "finished" if outcome.finished else "stopped by SIGTERM, with a checkpoint,"
    typer.echo(f"{name}: {state} at step {outcome.step}; loss {results.get('loss', float('nan')):.4f}")
    if validation:
        typer.echo(f"held out: {validation}")
    typer.echo(f"run directory: {directory}")
