"""`iha bench model`: decoding and training beside LlamaForCausalLM of the same size."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in
from iha.cli.progress import bars


def model(
    presets: Annotated[str, typer.Option(help="Sizes, comma-separated.")] = "10m,50m",
    tokens: Annotated[int, typer.Option(max=2**24, help="Context of decoding, length of a training sequence.")] = 2048,
    pseudo_heads: Annotated[int, typer.Option(help="P.")] = 2,
    new_tokens: Annotated[int, typer.Option(help="Tokens generated per round.")] = 32,
    rounds: Annotated[int, typer.Option(help="Of each measurement, in three runs; the best counts.")] = 6,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch; its own choice when not given.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also train compiled, and decode compiled with a static cache.")
    ] = False,
    training: Annotated[bool, typer.Option(help="Measure the training step.")] = True,
    decoding: Annotated[bool, typer.Option(help="Measure decoding and the cache.")] = True,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of weights and tokens.")] = 0,
    keep_memory: Annotated[bool, typer.Option(help="Freed memory stays with the process, for both sides.")] = True,
    products: Annotated[bool, typer.Option(help="Train with products by the faster library, both sides.")] = True,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("out/bench"),
    as_json: AsJson = False,
) -> None:
    """Tokens per second and cache bytes, as ratios to Llama: only attention differs."""
    from iha.bench.models import Settings, run
    from iha.report.bench import model_table

    if not training and not decoding:
        raise ValueError("--no-training and --no-decoding leave nothing to measure")
    settings = Settings(
        presets.split(","), tokens, pseudo_heads, new_tokens, rounds, threads, compiled, training, decoding, seed,
        keep_memory, products,
    )  # fmt: skip
    with results_in(out) as directory, bars() as progress:
        record = run(settings, directory / "model.json", command_line(), progress)
    if as_json:
        print_record(record)
    else:
        model_table(record).print()
