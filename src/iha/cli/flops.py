"""`iha flops`: what attention costs."""

import json
from pathlib import Path
from typing import Annotated

import typer


def flops(
    width: Annotated[int, typer.Option(help="Of the model, E.")] = 2560,
    heads: Annotated[int, typer.Option(help="H.")] = 20,
    kv_heads: Annotated[int | None, typer.Option(help="G; as many as heads when not given.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="D; width / heads when not given.")] = None,
    tokens: Annotated[int, typer.Option(help="N.")] = 8192,
    pseudo_heads: Annotated[int, typer.Option(help="P of the IHA layers.")] = 2,
    window: Annotated[int | None, typer.Option(help="W of the local IHA layers; N/(2P²) when not given.")] = None,
    match: Annotated[
        str | None,
        typer.Option(help="Solve W, to cost what global attention costs, counted so: paper, causal or exact."),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="global, global_local, iha or a mechanism; the paper's five when not given."),
    ] = None,
    layers: Annotated[int, typer.Option(help="Of the model.")] = 26,
    causal: Annotated[str, typer.Option(help="virtual, token or none.")] = "virtual",
    collapse: Annotated[str, typer.Option(help="Of IHA: per_head or full.")] = "per_head",
    element_size: Annotated[int, typer.Option(help="Bytes of a cached number.")] = 2,
    out: Annotated[Path, typer.Option(help="Where flops.json and flops.md go.")] = Path("out/flops"),
) -> None:
    """Parameters, FLOPs, cache bytes and the FLOP-matched window of every mechanism, by formula."""
    from rich.console import Console

    from iha.accounting.mechanisms import AttentionShape
    from iha.accounting.show import markdown, tables
    from iha.accounting.table import Question, answer

    try:
        shape = AttentionShape(width, heads, kv_heads, head_dim, None if causal == "none" else causal, collapse)  # type: ignore[arg-type]
        found = answer(Question(shape, tokens, pseudo_heads, layers, window, match, schedule, element_size))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)  # a file has room for the table
    for table in tables(found):
        console.print(table.rich())
    out.mkdir(parents=True, exist_ok=True)
    (out / "flops.json").write_text(json.dumps(found.as_json(), indent=1) + "\n", encoding="utf-8")
    (out / "flops.md").write_text(markdown(found), encoding="utf-8")
    console.print(f"wrote {out / 'flops.json'} and {out / 'flops.md'}", style="dim")
