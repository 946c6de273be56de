"""`iha experiment`: the paper's main experiment, to scale."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.train import STOPPED


def scale_model(
    changes: Annotated[
        list[str] | None, typer.Argument(help="Changes of every recipe, e.g. data.context=1024.")
    ] = None,
    size: Annotated[str, typer.Option(help="quick, small, 160m or 2.4b.")] = "small",
    mechanisms: Annotated[
        str, typer.Option(help="Comma-separated; the paper's five when not given.")
    ] = "global,global_local,talking_heads,differential,iha",
    variants: Annotated[str, typer.Option(help="Ablations of IHA, comma-separated, or 'all'.")] = "",
    phases: Annotated[str, typer.Option(help="Of pretrain, adapt and tune, comma-separated.")] = "pretrain,adapt,tune",
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0",
    learning_rates: Annotated[str, typer.Option(help="A sweep of pre-training, comma-separated.")] = "",
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
    from contextlib import nullcontext
    from math import isfinite

    from iha.cli.invocation import command_line
    from iha.cli.output import results_in
    from iha.cli.progress import bars
    from iha.experiment.plan import ABLATIONS, Settings, plan
    from iha.report.scale_model import phase_tables, plan_table

    words = [w for w in (v.strip() for v in variants.split(",")) if w]
    settings = Settings(
        size, tuple(mechanisms.split(",")), tuple(ABLATIONS) if words == ["all"] else tuple(words),
        tuple(phases.split(",")), tuple(_numbers(seeds, int)), tuple(_numbers(learning_rates, float)), length,
        tuple(changes or ()),
    )  # fmt: skip
    if not (isfinite(speed) and speed > 0):
        raise ValueError(f"--speed must be a positive number of tokens per second, got {speed}")
    planned = plan(settings, recipes, runs)
    with results_in(runs) if not dry_run else nullcontext(), results_in(out) if not dry_run else nullcontext():
        plan_table(planned, speed).print()
    if dry_run:
        return
    from iha.experiment.compare import compare
    from iha.experiment.run import KIND, StoppedError, run_all
    from iha.records import Record, read_record, write_record

    begun = Record.new("scale-model", command=command_line(), config={"size": size, "changes": list(changes or [])})
    try:
        with bars() as progress:
            run_all(planned, runs, out, command=command_line(), progress=progress)
    except StoppedError as stopped:
        typer.echo(str(stopped), err=True)
        raise typer.Exit(STOPPED) from None
    records = [read_record(path, KIND) for path in sorted(out.glob("*-s*.json"))]
    compared = {
        phase: compare(records, phase)
        for phase in settings.phases
        if any(record.config["phase"] == phase for record in records)
    }
    write_record(out / "comparison.json", begun.finished(compared))
    for phase in compared.values():
        for table in phase_tables(phase):
            table.print()


def _numbers(text: str, kind: type) -> list:
    try:
        return [kind(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ValueError(f"expected {kind.__name__}s separated by commas, got {text!r}") from None
