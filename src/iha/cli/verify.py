"""`iha verify`: the theorems of the paper, running."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in
from iha.cli.progress import bars


def verify(
    only: Annotated[
        str | None,
        typer.Option(
            help="One check: superset, strictness, polynomial, bound, cpm3, numbers, patterns, flops or tables."
        ),
    ] = None,
    n_max: Annotated[int | None, typer.Option(help="Size of CPM-3 (default: several, 1 to 16).")] = None,
    k: Annotated[int | None, typer.Option(help="Powers in the filter bank (default: several, 1 to 16).")] = None,
    train: Annotated[bool, typer.Option("--train", help="Also train IHA and MHA on both tasks: minutes.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the random graphs, weights and sequences.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the JSON and the pictures go.")] = Path("out/verify"),
    as_json: AsJson = False,
) -> None:
    """Build every construction of the paper, run it, compare it with the truth and count its parameters.

    Exits with 1 if anything that should hold does not, or if something listed as an erratum turns out to be true.
    """
    from iha.records import write_record, write_text
    from iha.report.errata import markdown
    from iha.report.learned import draw_learned, learned_table
    from iha.report.theory import draw
    from iha.report.verify import claims_table, row_style, summary
    from iha.theory.learned import learn
    from iha.theory.verify import Settings
    from iha.theory.verify import verify as run

    settings = Settings(only, n_max, k, seed)
    drawing = find_spec("matplotlib") is not None  # the checks do without it
    with results_in(out) as directory, bars() as progress:
        record = run(settings, command_line(), progress)
        write_record(directory / "verify.json", record)
        write_text(directory / "errata.md", markdown(record.results["errata"]))
        pictures = draw(record, directory) if drawing else []
        learned = learn(seed, command_line(), progress) if train else None
        if learned is not None:
            write_record(directory / "learned.json", learned)
            pictures += draw_learned(learned, directory) if drawing else []
    if as_json:
        print_record(record)
    else:
        claims_table(record).print(style=row_style)
        typer.echo(summary(record))
        if learned is not None:
            learned_table(learned).print()
        drawn = (
            f"{len(pictures)} pictures" if drawing else "no pictures: they need matplotlib, pip install 'iha[report]'"
        )
        typer.echo(f"{record.seconds:.0f} s; {out / 'verify.json'}; {drawn}")
    if record.results["failed"]:
        raise typer.Exit(1)
