"""`iha flops`: what attention costs."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in


def flops(
    width: Annotated[int, typer.Option(max=10**7, help="Of the model, E.")] = 2560,
    heads: Annotated[int, typer.Option(max=10**5, help="H.")] = 20,
    kv_heads: Annotated[int | None, typer.Option(help="G; as many as heads when not given.")] = None,
    head_dim: Annotated[int | None, typer.Option(max=10**6, help="D; width / heads when not given.")] = None,
    tokens: Annotated[int, typer.Option(max=10**8, help="N.")] = 8192,
    pseudo_heads: Annotated[int, typer.Option(max=10**5, help="P of the IHA layers.")] = 2,
    pseudo_keys: Annotated[
        int | None,
        typer.Option(max=10**5, help="P_k, if it differs from P; needs --causal token or none."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(max=10**8, help="W of the local IHA layers; N/(2·P·P_k) when not given.")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(help="Solve W, to cost what global attention costs, counted so: paper, causal or exact."),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="global, global_local, iha or a mechanism; the paper's five when not given."),
    ] = None,
    layers: Annotated[int, typer.Option(max=10**4, help="Of the model.")] = 26,
    causal: Annotated[str, typer.Option(help="virtual, token or none.")] = "virtual",
    collapse: Annotated[str, typer.Option(help="Of IHA: per_head or full.")] = "per_head",
    gate: Annotated[
        str | None, typer.Option(help="Of the output: headwise or elementwise; none when not given.")
    ] = None,
    element_size: Annotated[int, typer.Option(max=64, help="Bytes of a cached number.")] = 2,
    out: Annotated[Path, typer.Option(help="Where flops.json and flops.md go.")] = Path("out/flops"),
    as_json: AsJson = False,
) -> None:
    """Parameters, FLOPs, cache bytes and the FLOP-matched window of every mechanism, by formula."""
    from iha.accounting.mechanisms import AttentionShape
    from iha.accounting.table import Question, record
    from iha.records import write_record, write_text
    from iha.report.flops import markdown, tables

    rule = None if causal == "none" else causal
    shape = AttentionShape(width, heads, kv_heads, head_dim, rule, collapse, gate=gate)  # type: ignore[arg-type]
    question = Question(shape, tokens, pseudo_heads, layers, window, match, schedule, element_size, pseudo_keys)
    with results_in(out) as directory:
        found = record(question, command_line())
        write_record(directory / "flops.json", found)
        write_text(directory / "flops.md", markdown(found))
    if as_json:
        print_record(found)
        return
    for table in tables(found):
        table.print()
    typer.echo(f"wrote {out / 'flops.json'} and {out / 'flops.md'}")
