"""`iha bench gpu`: whether every backend is right on this GPU, and how fast (`make test-gpu`)."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in
from iha.cli.progress import bars


def gpu(
    repeats: Annotated[int, typer.Option(min=3, help="Rounds; the best of them counts.")] = 30,
    out: Annotated[Path, typer.Option(help="Where gpu.json goes.")] = Path("out/gpu"),
    as_json: AsJson = False,
) -> None:
    """Every backend against the float64 reference on this GPU, and local IHA's speed beside is_causal flash attention.

    The file it writes can be sent back to the project. The exit code is 1 if an error is too large.
    """
    from iha.bench.gpu import Settings, run
    from iha.records import write_record
    from iha.report.bench_gpu import gpu_tables

    with results_in(out) as directory, bars() as progress:
        record = run(Settings(repeats=repeats), command_line(), progress)
        write_record(directory / "gpu.json", record)
    if as_json:
        print_record(record)
    else:
        for table in gpu_tables(record):
            table.print()
        typer.echo(f"written to {out / 'gpu.json'}")
    if not record.results["passed"]:
        raise typer.Exit(1)
