"""`iha experiment compare`: the scale model's records as tables, pictures and documentation; runs nothing."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    records: Annotated[Path, typer.Argument(help="Where the runs are recorded.")] = Path("results/scale-model"),
    docs: Annotated[
        Path | None, typer.Option(help="Also fill scale-model.md and conversion.md of this directory, with pictures.")
    ] = None,
) -> None:
    """Compare all recorded runs again: writes comparison.json beside them and prints every table."""
    from iha.cli.invocation import command_line
    from iha.records import Record, write_record
    from iha.report.scale_model_docs import compared, tables, write_docs

    begun = Record.new("scale-model", command=command_line(), config={"records": str(records)})
    phases = compared(records)
    write_record(records / "comparison.json", begun.finished(phases))
    for table in (table for block in tables(records, phases).values() for table in block):
        table.print()
    if docs is not None:
        for path in write_docs(records, docs):
            typer.echo(f"wrote {path}")
