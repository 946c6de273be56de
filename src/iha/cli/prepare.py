"""`iha prepare`: the data of a recipe, tokenised."""

from pathlib import Path
from typing import Annotated

import typer


def prepare(
    recipe: Annotated[Path, typer.Argument(help="The recipe whose data is wanted.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Any key of it, e.g. data.directory=DIR.")] = None,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Where the shards go; data.directory when not given.")] = None,
) -> None:
    """Tokenise the sources of a recipe into memory-mapped shards. If it is interrupted, the same command resumes it."""
    from iha.cli.progress import bars
    from iha.train.packing import PackedSource
    from iha.train.prepare import prepare as prepare_data
    from iha.train.recipe import read_recipe

    settings = read_recipe(recipe, overrides or [])
    place = out or (Path(settings.data.directory) if settings.data.directory else None)
    if place is None:
        raise ValueError(
            f"{recipe}: data.directory is not set: set it, or give --out DIR and train with data.directory=DIR"
        )
    with bars() as progress:
        tokenizer = prepare_data(settings.data, place, seed=settings.seed, workers=workers, progress=progress)
    for source in settings.data.sources:
        counts = []
        for split in ("train", "validation"):
            packed = PackedSource(
                place / source.name, split, settings.data.context, settings.data.packing, tokenizer.end_id
            )
            counts.append(f"{split} {packed.num_tokens:,} tokens in {len(packed):,} sequences")
        typer.echo(f"{source.name}: {', '.join(counts)}")
    typer.echo(f"shards in {place}")
