"""`iha report`: one page from the records of runs."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[
        Path | None,
        typer.Argument(help="The records of a run, e.g. out; the committed ones alone when not given."),
    ] = None,
    committed: Annotated[
        Path | None, typer.Option(help="Records of longer runs, shown beside them; results/ of the checkout if there.")
    ] = None,
    figures: Annotated[bool, typer.Option(help="Also write every chart as PNG and SVG.")] = True,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    out: Annotated[Path, typer.Option(help="Where report.html and figures/ go.")] = Path("out/report"),
) -> None:
    """Draw the report: verdicts, theorems, learning curves, costs, errata and the attention explorer, in one file."""
    from iha.cli.output import results_in
    from iha.report.page.report import write_report

    for name, directory in (("run", run), ("--committed", committed)):
        if directory is not None and not directory.is_dir():
            raise ValueError(f"{name}: {directory} is not a directory")
    kept = committed or (Path("results") if Path("results").is_dir() else None)
    with results_in(out):
        path = write_report(out, run, kept, figures)
    typer.echo(f"wrote {path}")
    if show:
        typer.launch(str(path))
