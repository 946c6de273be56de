"""`iha convert`: a Llama, Mistral or Qwen checkpoint becomes an IHA model with the same logits, or goes back."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.output import AsJson, print_record, results_in


def convert(
    source: Annotated[str, typer.Argument(help="A checkpoint directory with safetensors, or a Hub repository.")],
    destination: Annotated[Path, typer.Argument(help="Where the converted checkpoint goes; must not exist.")],
    pseudo_heads: Annotated[int, typer.Option(help="P of the converted layers.")] = 2,
    pseudo_keys: Annotated[int | None, typer.Option(help="P_k of the converted layers, if it differs from P.")] = None,
    layers: Annotated[
        str | None, typer.Option(help="Which layers, from 0: 0-3,7. By default what --schedule says.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="all, or 4:1 for four converted layers to one left as it is.")] = "all",
    causal: Annotated[str, typer.Option(help="token or virtual.")] = "token",
    collapse: Annotated[str, typer.Option(help="per_head or full.")] = "per_head",
    back: Annotated[
        bool, typer.Option("--back", help="From IHA to the plain architecture, while that is exact.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of the perturbations that let pseudo-heads learn apart.")
    ] = 0,
    routed: Annotated[
        bool, typer.Option("--routed", help="Pseudo-queries begin as queries of other heads, behind a zero in R.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where convert.json goes.")] = Path("out/convert"),
    as_json: AsJson = False,
) -> None:
    """Convert a checkpoint shard by shard; everything is checked before anything is written."""
    import iha.convert
    from iha.cli.main import command_line
    from iha.cli.progress import bars
    from iha.convert.selection import parse_layers
    from iha.records import Record, write_record

    options = {"layers": None if layers is None else parse_layers(layers), "schedule": schedule, "causal": causal,
               "collapse": collapse, "seed": seed, "routed": routed, "num_pseudo_keys": pseudo_keys}  # fmt: skip
    with results_in(out):
        config = {"back": True} if back else {"pseudo_heads": pseudo_heads, **options}
        record = Record.new("convert", command=command_line(), config=config, seed=seed)
        if back:
            results = {"model_type": iha.convert.export(source, destination, progress=bars())["model_type"]}
        else:
            converted = iha.convert.convert(source, destination, pseudo_heads, **options, progress=bars())  # type: ignore[arg-type]
            results = iha.convert.summary(converted)
        record = record.finished(results)
        write_record(out / "convert.json", record)
    if as_json:
        print_record(record)
    else:
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in results.items())
        typer.echo(f"{destination}: {said}; {record.seconds:.1f} s")
