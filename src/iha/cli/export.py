"""`iha export`: a training run as a Hugging Face directory."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="The directory of a training run.")],
    step: Annotated[int | None, typer.Option(help="Of which checkpoint; the newest when not given.")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    out: Annotated[Path | None, typer.Option(help="Where it goes; RUN/export when not given.")] = None,
) -> None:
    """Weights, configuration and tokenizer for `from_pretrained`, `iha generate`, `iha eval` and --init-from."""
    from iha.cli.output import results_in
    from iha.train.export import export as export_run

    place = out or run / "export"
    with results_in(place):
        at = export_run(run, place, step=step, dtype=dtype)
    typer.echo(f"step {at} in {place}: from_pretrained, iha generate and iha eval read it")
