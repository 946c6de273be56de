"""`iha inspect`: what the heads of trained models do on a text."""

from pathlib import Path
from typing import Annotated

import typer

TEXTS = (
    "Pairs:\nfoot = 318\ngear = 195\nbell = 605\nWhat is gear?",
    "The boss of Ann is Ben. The boss of Ben is Carl.\nWho is the boss of the boss of Ann?",
    "def open(path, mode='r'):\n    return File(path, mode)\n",
)


def inspect(
    models: Annotated[list[str], typer.Argument(help="NAME=DIRECTORY of exports that share a tokenizer.")],
    text: Annotated[list[str] | None, typer.Option(help="A text to look at; several times for several.")] = None,
    tokens: Annotated[int, typer.Option(help="Of each text, at most.")] = 28,
    out: Annotated[Path, typer.Option(help="Where inside.json goes.")] = Path("out/inside"),
) -> None:
    """Attention maps, alpha and R of trained models, for the report's explorer."""
    from iha.cli.invocation import command_line
    from iha.cli.output import results_in
    from iha.evaluate.inside import inspect_models
    from iha.records import write_record

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
