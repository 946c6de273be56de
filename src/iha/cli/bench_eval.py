"""`iha bench eval`: what evaluating costs beyond generating."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import command_line
from iha.cli.output import AsJson, print_record, results_in
from iha.cli.progress import bars


def evaluation(
    preset: Annotated[str, typer.Option(help="Size of the model.")] = "10m",
    questions: Annotated[int, typer.Option(help="Of the evaluation that is timed.")] = 16,
    prompt_tokens: Annotated[int, typer.Option(help="Of each question.")] = 512,
    new_tokens: Annotated[int, typer.Option(help="Of each answer.")] = 32,
    samples: Annotated[int, typer.Option(help="Per question, where the prompt is read once.")] = 16,
    batch_size: Annotated[int, typer.Option(help="Sequences at a time.")] = 16,
    rounds: Annotated[int, typer.Option(help="Of each comparison; the best counts.")] = 6,
    lengths: Annotated[str, typer.Option(help="Of RULER's samples, comma-separated.")] = "4096,131072",
    tokenizer: Annotated[
        str | None, typer.Option(help="For RULER: a directory or tokenizer.json; bytes when not given.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="RULER's essays and documents; without it five tasks.")] = None,
    programs: Annotated[int, typer.Option(help="Started in the jail.")] = 20,
    seed: Annotated[int, typer.Option(help="Of weights and questions.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("out/bench"),
    as_json: AsJson = False,
) -> None:
    """The harness over bare generation, samples that share their prompt, RULER's samples, the jail."""
    from iha.bench.eval import Settings, run
    from iha.report.bench_eval import eval_tables

    lengths_ = tuple(int(word) for word in lengths.split(",") if word.strip())
    settings = Settings(
        preset, questions, prompt_tokens, new_tokens, samples, batch_size, rounds, lengths_, tokenizer,
        None if data is None else str(data), programs, seed,
    )  # fmt: skip
    with results_in(out) as directory, bars() as progress:
        record = run(settings, directory / "eval.json", command_line(), progress)
    if as_json:
        print_record(record)
        return
    for table in eval_tables(record):
        table.print()
