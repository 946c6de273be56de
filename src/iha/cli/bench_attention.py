"""`iha bench attention`: interleaved head attention beside SDPA, in time and memory."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in
from iha.cli.progress import bars


def attention(
    tokens: Annotated[int, typer.Option(max=2**24, help="N.")] = 4096,
    heads: Annotated[int, typer.Option(help="H.")] = 8,
    head_dim: Annotated[int, typer.Option(help="D.")] = 64,
    pseudo_heads: Annotated[str, typer.Option(help="P, comma-separated.")] = "2,4",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch; its own choice when not given.")] = None,
    repeats: Annotated[int, typer.Option(help="Rounds; the best of them counts.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="The comparisons alone: no growth, no mechanisms.")] = False,
    keep_memory: Annotated[bool, typer.Option(help="Freed memory stays with the process, for both sides.")] = True,
    out: Annotated[Path, typer.Option(help="Where the JSON and the picture go.")] = Path("out/bench"),
    as_json: AsJson = False,
) -> None:
    """Time IHA against SDPA at equal FLOPs, measure its memory, and draw time against N."""
    from iha.cli.low_precision import guard_low_precision

    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler that measures memory would print between the tables
    guard_low_precision(dtype)
    from iha.bench.attention import Settings, run
    from iha.records import write_record
    from iha.report.bench import attention_tables, draw_growth

    settings = Settings(
        tokens, heads, head_dim, integers(pseudo_heads), dtype, threads, repeats, quick, keep_memory=keep_memory
    )
    with results_in(out) as directory, bars() as progress:
        record = run(settings, command_line(), progress)
        write_record(directory / "attention.json", record)
        if record.results["growth"] and find_spec("matplotlib") is not None:
            draw_growth(record, directory / "attention.svg")
    if as_json:
        print_record(record)
        return
    for table in attention_tables(record):
        table.print()
    typer.echo(f"written to {out}")


def integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"pseudo-heads must be numbers separated by commas, got {text!r}") from None
