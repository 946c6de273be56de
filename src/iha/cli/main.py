"""The command `iha`. Each subcommand is one file here, imports what it needs when it runs, and holds no logic."""

import typer

from iha.cli.bench_attention import attention
from iha.cli.bench_model import model
from iha.cli.convert import convert
from iha.cli.flops import flops
from iha.cli.generate import generate
from iha.cli.synth import synth
from iha.cli.verify import verify

app = typer.Typer(
    help="Interleaved Head Attention: is the paper right, how fast is it, and how do I use it?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
for command in (verify, synth, generate, convert, flops):
    app.command()(command)

bench = typer.Typer(help="Speed and memory, side by side, as ratios.", no_args_is_help=True)
bench.command()(attention)
bench.command()(model)
app.add_typer(bench, name="bench")
