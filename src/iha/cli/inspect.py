"""`iha inspect`: what the heads of trained models do on a text."""

from pathlib import Path
from typing import Annotated

import typer

TEXTS = (
    "Pairs: foot 31 gear 45 bell 60\nAgain: bell 60 foot 31 gear",
    "Bosses: Ann Ben, Ben Carl, Carl Dora,\nTwice Ann",
    "def open(path, mode='r'):\n    return File(path, mode)\n",
)


def inspect(
    models: Annotated[list[str], typer.Argument(help="NAME=DIRECTORY of exports that share a tokenizer.")],
    text: Annotated[list[str] | None, typer.Option(help="A text to look at; several times for several.")] = None,
    tokens: Annotated[int, typer.Option(help="Of each text, at most.")] = 28,
    held_out: Annotated[
        Path | None,
        typer.Option(help="A text file to measure on how far pseudo-heads are apart."),
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens of a sequence of --held-out.")] = 256,
    sequences: Annotated[int, typer.Option(help="Of --held-out, at most.")] = 8,
    out: Annotated[Path, typer.Option(help="Where inside.json goes.")] = Path("out/inside"),
) -> None:
    """Attention maps, alpha and R of trained models, for the report's explorer; with --held-out, pseudo-heads too."""
    from transformers.utils import logging

    from iha.cli.invocation import command_line
    from iha.cli.output import results_in
    from iha.evaluate.inside import inspect_models
    from iha.evaluate.pseudo_heads import measure_export
    from iha.records import write_record
    from iha.report.pseudo_heads import of_records, pseudo_heads_table

    logging.disable_progress_bar()  # of the weights
    named = {}
    for word in models:
        name, separator, directory = word.partition("=")
        if not separator or not name or not directory or not Path(directory).is_dir():
            raise ValueError(f"expected NAME=DIRECTORY of an export, got {word!r}")
        if name in named:
            raise ValueError(f"two models are called {name!r}")
        named[name] = Path(directory)
    if tokens < 1:
        raise ValueError(f"--tokens must be at least 1, got {tokens}")
    with results_in(out):
        record = inspect_models(named, tuple(text or TEXTS), tokens, command_line())
        write_record(out / "inside.json", record)
        typer.echo(f"wrote {out / 'inside.json'}")
        if held_out is not None:
            measured = [
                measure_export(name, directory, _read(held_out), length, sequences, command_line())
                for name, directory in named.items()
            ]
            for one in measured:
                write_record(out / f"pseudo-heads-{one.config['name']}.json", one)
            pseudo_heads_table(of_records(measured)).print()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--held-out {path} is no text file: {error}") from error
