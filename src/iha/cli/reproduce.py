"""`iha reproduce`: the main job."""

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    scale: Annotated[
        str, typer.Option(help="quick (minutes), standard (hours) or paper (plans; launches where the GPUs are).")
    ] = "quick",
    gpus: Annotated[int, typer.Option(help="Of the paper's scale: 1 to 8 on this machine, or a multiple of 8.")] = 128,
    gpu: Annotated[str, typer.Option(help="Of the paper's scale: a100, h100, h200 or b200.")] = "h200",
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the report at the end.")] = False,
    out: Annotated[Path, typer.Option(help="Everything goes below it; a rerun continues there.")] = Path("out"),
) -> None:
    """Does the paper hold? The theorems, the synthetic task, five small language models, benchmarks, and the report.

    Exits with 1 if anything unexpected was found or a stage failed. If it is killed, the same command resumes it.
    """
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.records import Record, Table
    from iha.reproduce.run import run_stages
    from iha.reproduce.stages import stages

    launch: Record | None = None
    with bars() as progress:
        if scale == "paper":
            from iha.reproduce.paper import reproduce_paper

            launch, outcomes = reproduce_paper(gpus, gpu, out, command=command_line(), progress=progress)
        else:
            outcomes = run_stages(stages(scale, out), out, command=command_line(), progress=progress)
    if launch is not None:
        _show_launch(launch, out)
    table = Table(f"iha reproduce --scale {scale}", ["stage", "state", "minutes", "CPU minutes", "detail"])
    for outcome in outcomes:
        detail = outcome.detail if not outcome.good else ""
        times = (f"{seconds / 60:.1f}" for seconds in (outcome.seconds, outcome.cpu_seconds))
        table.add([outcome.stage.title, outcome.state, *times, detail])
    table.print()
    page = out / "report" / "report.html"
    if page.exists():
        typer.echo(f"the report: {page}")
        if show:
            typer.launch(str(page))
    if not all(outcome.good for outcome in outcomes):
        raise typer.Exit(1)


def _show_launch(launch: "Record", out: Path) -> None:  # type: ignore[name-defined]  # noqa: F821
    """The commands, and what they take."""
    from iha.records import read_record
    from iha.report.plan import record_table

    for command in launch.results["commands"]:
        typer.echo(command)
    plan = out / "plan" / "plan.json"
    if plan.exists():
        record_table(read_record(plan, "train-plan")).print()
    gpus, there = launch.config["gpus"], launch.results["available"]
    if not launch.results["launched"]:
        typer.echo(f"not launched: {gpus} GPUs are asked for (--gpus), this machine has {there}")
