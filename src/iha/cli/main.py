"""The command `iha`. Each subcommand is one file here, imports what it needs when it runs, and holds no logic."""

from typing import Annotated

import typer

from iha.cli.allocate import allocate
from iha.cli.bench_attention import attention
from iha.cli.bench_eval import evaluation as bench_evaluation
from iha.cli.bench_gpu import gpu
from iha.cli.bench_model import model
from iha.cli.bench_trainer import trainer
from iha.cli.convert import convert
from iha.cli.eval import group as evaluation
from iha.cli.experiment import scale_model
from iha.cli.experiment_allocated import allocated
from iha.cli.experiment_architectures import architectures
from iha.cli.experiment_compare import compare
from iha.cli.experiment_evaluate import evaluate
from iha.cli.experiment_inside import inside
from iha.cli.experiment_measure import measure
from iha.cli.experiment_speed import speed
from iha.cli.experiment_upcycle import upcycle
from iha.cli.export import export
from iha.cli.flops import flops
from iha.cli.generate import generate
from iha.cli.inspect import inspect
from iha.cli.invocation import Command, Group, command_line
from iha.cli.plan import plan
from iha.cli.prepare import prepare
from iha.cli.report import report
from iha.cli.reproduce import reproduce
from iha.cli.synth import collect, synth
from iha.cli.train import train
from iha.cli.verify import verify
from iha.version import __version__

__all__ = ["app", "command_line"]

app = typer.Typer(
    cls=Group,
    help="Interleaved Head Attention: is the paper right, how fast is it, and how do I use it?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # errors are reported by Group
)
COMMANDS = (
    reproduce, report, verify, synth, collect,  # is the paper right?
    plan, prepare, train, export, inspect,  # train one
    generate, convert, allocate, flops,  # use it
)  # fmt: skip
for command in COMMANDS:
    app.command(cls=Command)(command)

bench = typer.Typer(cls=Group, help="Speed and memory, side by side, as ratios.", no_args_is_help=True)
bench.command(cls=Command)(attention)
bench.command(cls=Command)(model)
bench.command("eval", cls=Command)(bench_evaluation)
bench.command(cls=Command)(gpu)
bench.command(cls=Command)(trainer)
app.add_typer(bench, name="bench")
app.add_typer(evaluation, name="eval")

experiment = typer.Typer(cls=Group, help="Experiments made of many training runs.", no_args_is_help=True)
experiment.command("scale-model", cls=Command)(scale_model)
experiment.command("evaluate", cls=Command)(evaluate)
experiment.command("measure", cls=Command)(measure)
experiment.command("compare", cls=Command)(compare)
experiment.command("inside", cls=Command)(inside)
experiment.command("speed", cls=Command)(speed)
experiment.command("upcycle", cls=Command)(upcycle)
experiment.command("allocated", cls=Command)(allocated)
experiment.command("architectures", cls=Command)(architectures)
app.add_typer(experiment, name="experiment")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"iha {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
