"""`iha allocate`: pseudo-heads where they pay, within a budget of FLOPs, time or cache."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.output import results_in


def allocate(
    checkpoint: Annotated[str, typer.Argument(help="An IHA checkpoint with token causality and positions.")],
    destination: Annotated[Path, typer.Argument(help="Where the resized checkpoint goes; must not exist.")],
    data: Annotated[Path, typer.Option(help="A text file that the model was not trained on.")],
    flops: Annotated[
        float | None,
        typer.Option(
            help="Budget: FLOPs of attention and mixing, in units of global multi-head attention in every layer. "
            "1.0 when no budget is given."
        ),
    ] = None,
    latency: Annotated[
        float | None, typer.Option(help="Instead of --flops: forward time of the attention layers, measured here.")
    ] = None,
    cache: Annotated[
        float | None, typer.Option(help="Budget: bytes of keys and values; alone, or with one of the two others.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="N of the budget; the model's longest when not given.")] = None,
    windows: Annotated[str, typer.Option(help="Windows to try, as shares of a layer's own, comma-separated.")] = "1",
    length: Annotated[int, typer.Option(help="Tokens of a sequence of --data.")] = 256,
    sequences: Annotated[int, typer.Option(help="Of --data, at most.")] = 8,
    rounds: Annotated[int, typer.Option(help="Turns of every layer in measuring its time; the best counts.")] = 6,
    out: Annotated[Path, typer.Option(help="Where allocation.json goes.")] = Path("out/allocate"),
) -> None:
    """Measure what the pseudo-heads of each layer are worth, keep the best within the budget, write a checkpoint."""
    from iha.bench.calibration import Calibration
    from iha.cli.invocation import command_line
    from iha.cli.progress import bars
    from iha.evaluate.allocation import KIND
    from iha.evaluate.allocation import allocate as run
    from iha.evaluate.budget import Budget
    from iha.evaluate.pseudo_heads import sequences_of
    from iha.models.generation import load
    from iha.models.modeling import IHAForCausalLM
    from iha.records import Record, output_directory, write_record
    from iha.synthetic.config import decimals

    if destination.exists():
        raise ValueError(f"{destination} exists already")
    if flops is latency is cache is None:
        flops = 1.0
    budget = Budget(flops, latency, cache)
    try:
        text = data.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--data {data} is no text file: {error}") from error
    model, tokenizer = load(checkpoint)
    if not isinstance(model, IHAForCausalLM):
        raise ValueError(f"{checkpoint} is a {model.config.model_type!r} model: run `iha convert` first")
    num_tokens = model.config.max_position_embeddings if tokens is None else tokens
    config = {"checkpoint": checkpoint, "budget": budget.shares, "tokens": num_tokens, "windows": windows,
              "length": length, "sequences": sequences, "rounds": rounds}  # fmt: skip
    with results_in(out):
        record = Record.new(KIND, command=command_line(), config=config)
        measured = sequences_of(tokenizer, text, length, sequences)
        progress = bars()
        latencies = Calibration(num_tokens, rounds, model.device, model.dtype, progress)
        smaller, results = run(model, measured, budget, num_tokens, decimals(windows) or (1.0,), latencies, progress)
        if latencies.quiet is not None:
            results["quiet"] = latencies.quiet.as_json()
        output_directory(destination)
        smaller.save_pretrained(destination)
        tokenizer.save_pretrained(destination)
        write_record(out / "allocation.json", record.finished(results))
    for warning in results.get("quiet", {}).get("warnings", []):
        typer.echo(warning, err=True)

    def costs(found: dict) -> str:
        known = (name for name in ("flops", "latency", "cache") if name in found)
        return f"loss {found['loss']:.4f}; of global attention: " + ", ".join(f"{n} {found[n]:.3f}" for n in known)

    for name in ("allocated", "uniform"):
        if (found := results[name]) is not None:
            typer.echo(f"{name}: {costs(found)}")
    typer.echo(f"before: {costs(results)}; wrote {destination}")
