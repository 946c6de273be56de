"""`iha convert`: a Llama, Mistral or Qwen checkpoint becomes an IHA model with the same logits, or goes back."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def convert(
    source: Annotated[str, typer.Argument(help="A checkpoint directory with safetensors, or a Hub repository.")],
    destination: Annotated[Path, typer.Argument(help="Where the converted checkpoint goes; must not exist.")],
    pseudo_heads: Annotated[int, typer.Option(help="P of the converted layers.")] = 2,
    layers: Annotated[
        str | None, typer.Option(help="Which layers, from 0: 0-3,7. By default what --schedule says.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="all, or 4:1 for four converted layers to one left as it is.")] = "all",
    causal: Annotated[str, typer.Option(help="token or virtual.")] = "token",
    collapse: Annotated[str, typer.Option(help="per_head or full.")] = "per_head",
    back: Annotated[
        bool, typer.Option("--back", help="From IHA to the plain architecture, while that is exact.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the perturbations that let pseudo-heads learn apart.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("out/convert"),
) -> None:
    """Convert a checkpoint shard by shard; everything is checked before anything is written."""
    import iha.convert
    from iha.convert.selection import parse_layers

    console, started = Console(), time.perf_counter()
    try:
        with console.status("converting"):
            if back:
                raw = iha.convert.export(source, destination)
                results = {"model_type": raw["model_type"]}
            else:
                chosen = None if layers is None else parse_layers(layers)
                config = iha.convert.convert(
                    source, destination, pseudo_heads, layers=chosen, schedule=schedule, causal=causal,
                    collapse=collapse, seed=seed,
                )  # fmt: skip
                results = iha.convert.summary(config)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    results |= {"seconds": round(time.perf_counter() - started, 3), "seed": seed}
    out.mkdir(parents=True, exist_ok=True)
    (out / "convert.json").write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"{destination}: " + ", ".join(f"{name} {value}" for name, value in results.items()))
