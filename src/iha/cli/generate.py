"""`iha generate`: a prompt in, text streamed out."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from iha.cli.output import AsJson, print_record, results_in


def generate(
    model: Annotated[str, typer.Argument(help="A checkpoint directory.")],
    prompt: Annotated[str | None, typer.Argument(help="What to continue, or the user's message in a chat.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A file of prompts, one per line, or .jsonl with `prompt`.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="At most this many.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.8,
    top_p: Annotated[float, typer.Option(help="Nucleus sampling.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="The k likeliest only; 0 for all.")] = 0,
    beams: Annotated[int, typer.Option(help="Of beam search.")] = 1,
    seed: Annotated[int, typer.Option(help="Of sampling.")] = 0,
    chat: Annotated[bool | None, typer.Option(help="Use the chat template; by default if there is one.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts at a time.")] = 8,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    out: Annotated[Path, typer.Option(help="Where generate.json goes.")] = Path("out/generate"),
    as_json: AsJson = False,
) -> None:
    """Continue a prompt, or a file of prompts, with any checkpoint; tokens per second at the end."""
    from iha.cli.low_precision import guard_low_precision

    guard_low_precision(dtype)
    from transformers.utils import logging

    from iha.cli.main import command_line
    from iha.models import generation
    from iha.records import Record, write_record

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # `load` raises an error for every warning that matters
    if (prompt is None) == (prompts is None):
        raise ValueError("give a prompt or --prompts FILE, one of them")
    sampling = generation.Sampling(max_new_tokens, temperature, top_p, top_k, beams, seed)
    texts = [prompt] if prompt is not None else generation.read_prompts(prompts)  # type: ignore[arg-type]
    streamed = len(texts) == 1 and beams == 1 and not as_json
    with results_in(out):
        network, tokenizer = generation.load(model, dtype, device)
        config = {
            "model": Path(model).name,
            "sampling": asdict(sampling),
            "batch_size": batch_size,
            "dtype": dtype,
            "device": device,
        }
        record = Record.new("generate", command=command_line(), config=config, seed=seed)
        runs = []
        for run in generation.generate(
            network, tokenizer, texts, sampling, chat=chat, batch_size=batch_size,
            emit=(lambda text: typer.echo(text, nl=False)) if streamed else None,
        ):  # fmt: skip
            runs.append(run)
            for generated in [] if streamed or as_json else run.generated:
                typer.echo(f"{generated.prompt} → {generated.text}")
        results = generation.summary(runs)
        record = record.finished(results)
        write_record(out / "generate.json", record)
    if as_json:
        print_record(record)
    else:
        typer.echo(f"{results['tokens_per_second']:.1f} tokens/s, {results['seconds']:.1f} s", err=True)
