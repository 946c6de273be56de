"""`iha bench attention`: interleaved head attention beside SDPA, in time and memory."""

import os
from pathlib import Path
from typing import Annotated

import typer


def attention(
    tokens: Annotated[int, typer.Option(help="N.")] = 4096,
    heads: Annotated[int, typer.Option(help="H.")] = 8,
    head_dim: Annotated[int, typer.Option(help="D.")] = 64,
    pseudo_heads: Annotated[str, typer.Option(help="P, comma-separated.")] = "2,4",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="Of torch; its own choice when not given.")] = None,
    repeats: Annotated[int, typer.Option(help="Rounds; the best of them counts.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="The comparisons alone: no growth, no mechanisms.")] = False,
    out: Annotated[Path, typer.Option(help="Where the JSON and the picture go.")] = Path("out/bench"),
) -> None:
    """Time IHA against SDPA at equal FLOPs, measure its memory, and draw time against N."""
    from iha.cli.low_precision import guard_low_precision

    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler that measures memory would talk between the tables
    guard_low_precision(dtype)
    from iha.report.bench import run_attention

    try:
        run_attention(tokens, heads, head_dim, pseudo_heads, dtype, threads, repeats, quick, out)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
