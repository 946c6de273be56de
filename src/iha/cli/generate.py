"""`iha generate`: a prompt in, text streamed out."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


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
    batch_size: Annotated[int, typer.Option(help="Prompts at a time.")] = 8,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("out/generate"),
) -> None:
    """Continue a prompt, or a file of prompts, with any checkpoint; tokens a second at the end."""
    from iha.cli.low_precision import guard_low_precision

    guard_low_precision(dtype)
    from iha.models import generation

    console = Console()
    if (prompt is None) == (prompts is None):
        raise typer.BadParameter("give a prompt or --prompts FILE, one of them")
    try:
        sampling = generation.Sampling(max_new_tokens, temperature, top_p, top_k, beams, seed)
        texts = [prompt] if prompt is not None else generation.read_prompts(prompts)  # type: ignore[arg-type]
        network, tokenizer = generation.load(model, dtype, device)
        runs = []
        for run in generation.generate(
            network, tokenizer, texts, sampling, chat=chat, batch_size=batch_size,
            emit=lambda text: console.print(text, end="", markup=False, highlight=False),
        ):  # fmt: skip
            runs.append(run)
            for generated in run.generated if len(texts) > 1 or beams > 1 else []:
                console.print(f"[bold]{len(generated.prompt)} characters in[/bold]", end=" ")
                console.print(generated.text, markup=False, highlight=False)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    results = generation.as_json(model, sampling, runs)
    out.mkdir(parents=True, exist_ok=True)
    (out / "generate.json").write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"{results['tokens_per_second']:.1f} tokens/s, {results['seconds']:.1f} s", style="dim")
