"""`iha experiment evaluate`: the scale model's trained models answer questions."""

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    runs: Annotated[Path, typer.Argument(help="--runs of `iha experiment scale-model`.")],
    mechanisms: Annotated[
        str, typer.Option(help="Comma-separated.")
    ] = "global,global_local,talking_heads,differential,iha",
    lengths: Annotated[str, typer.Option(help="Of RULER's samples in tokens, comma-separated.")] = "512,1024",
    limit: Annotated[int, typer.Option(help="Questions per task.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the trained models, and of the questions.")] = 0,
    out: Annotated[Path, typer.Option(help="Where evaluation.json and the answers go; a rerun resumes.")] = Path(
        "out/scale-model-evaluation"
    ),
) -> None:
    """RULER's needles and held-out puzzles for every mechanism, with a few generated answers to read."""
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.experiment.evaluation import Scope, evaluate_models
    from iha.records import write_record
    from iha.report.scale_model import evaluation_table

    try:
        numbers = tuple(int(word) for word in lengths.split(",") if word.strip())
    except ValueError:
        raise ValueError(f"--lengths must be whole numbers, comma-separated, got {lengths!r}") from None
    scope = Scope(numbers, limit, seed)
    with bars() as progress:
        record = evaluate_models(
            runs, tuple(mechanisms.split(",")), out, scope, command=command_line(), progress=progress
        )
    write_record(out / "evaluation.json", record)
    for phase in record.results:
        evaluation_table(record, phase).print()
