"""`iha reproduce`: the main job."""

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    scale: Annotated[
        str, typer.Option(help="quick (minutes), standard (hours) or paper (prints and plans the launch).")
    ] = "quick",
    gpus: Annotated[int, typer.Option(help="Of the paper's scale.")] = 128,
    gpu: Annotated[str, typer.Option(help="Of the paper's scale: a100, h100, h200 or b200.")] = "h200",
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the report at the end.")] = False,
    out: Annotated[Path, typer.Option(help="Everything goes below it; a rerun continues there.")] = Path("out"),
) -> None:
    """Does the paper hold? The theorems, the synthetic task, five small language models, benchmarks, and the report.

    Exits with 1 if anything unexpected was found or a stage failed. If it is killed, the same command resumes it.
    """
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.records import Table
    from iha.reproduce.run import run_stages
    from iha.reproduce.stages import paper_commands, stages

    if scale == "paper":
        for command in paper_commands(gpus, gpu):
            typer.echo(command)
        return
    with bars() as progress:
        outcomes = run_stages(stages(scale, out), out, command=command_line(), progress=progress)
    table = Table(f"iha reproduce --scale {scale}", ["stage", "state", "minutes", "detail"])
    for outcome in outcomes:
        detail = outcome.detail if not outcome.good else ""
        table.add([outcome.stage.title, outcome.state, f"{outcome.seconds / 60:.1f}", detail])
    table.print()
    page = out / "report" / "report.html"
    if page.exists():
        typer.echo(f"the report: {page}")
        if show:
            typer.launch(str(page))
    if not all(outcome.good for outcome in outcomes):
        raise typer.Exit(1)
