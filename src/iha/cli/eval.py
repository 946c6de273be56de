"""`iha eval`: run a model through the paper's tasks, score kept answers again, print the paper's tables."""

from pathlib import Path
from typing import Annotated

import typer

from iha.cli.invocation import Command, Group
from iha.cli.output import AsJson, print_record, results_in

group = typer.Typer(cls=Group, help="The paper's tasks for any model, and its tables.", no_args_is_help=True)


@group.command(cls=Command)
def run(
    model: Annotated[str, typer.Argument(help="A checkpoint directory, or a model's name on the Hugging Face Hub.")],
    tasks: Annotated[
        str,
        typer.Option(help="Comma-separated: pretrain, sft, ruler, ruler_multikey, or single tasks, e.g. gsm8k,vt."),
    ],
    lengths: Annotated[str, typer.Option(help="Of RULER's samples in tokens, comma-separated, 256 to 131072.")] = "",
    name: Annotated[str | None, typer.Option(help="Of the model in tables; by default the directory's.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Local data files; without it they come from the Hugging Face Hub.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Questions per task; all (RULER: 500) when not given.")] = None,
    seed: Annotated[int, typer.Option(help="Of RULER's samples, few-shot examples and sampling.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Sequences at a time.")] = 8,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of prompt and answer; by default what the model's config says.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Prompts go through the chat template.")] = False,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Run the programs that the model writes, in a jail.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    cache: Annotated[Path, typer.Option(help="Where RULER's samples are kept for the next model.")] = Path(
        "out/ruler-samples"
    ),
    out: Annotated[
        Path | None, typer.Option(help="Where results go, and an interrupted run goes on; out/eval/NAME by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model. Run it again to resume after an interruption, or with more tasks to add them."""
    from iha.cli.low_precision import guard_low_precision

    guard_low_precision(dtype)
    from iha.cli.main import command_line
    from iha.cli.progress import bars
    from iha.evaluate.engine import HuggingFaceEngine, load
    from iha.evaluate.protocol import Source
    from iha.evaluate.run import evaluate
    from iha.evaluate.suites import choose

    chosen = choose(_words(tasks), _numbers(lengths))
    name = name or Path(model).name
    with results_in(out or Path("out/eval") / name) as folder, results_in(cache), bars() as progress:
        network, tokenizer = load(model, dtype, device)
        engine = HuggingFaceEngine(network, tokenizer, batch_size=batch_size, chat=chat, max_length=max_length)
        record = evaluate(
            engine, chosen, folder, model=name,
            source=Source(data, limit, seed, cache=cache), command=command_line(), allow_code=allow_code,
            progress=progress,
        )  # fmt: skip
    if as_json:
        print_record(record)
        return
    for task, result in record.results.items():
        metrics = ", ".join(f"{metric} {value:.2f}" for metric, value in result["metrics"].items())
        clipped = f"; {result['clipped']} answers may be cut by the model's context" if result["clipped"] else ""
        typer.echo(f"{task}: {metrics} ({result['questions']} questions{clipped})")
    typer.echo(f"results: {folder}")


@group.command(cls=Command)
def score(
    folders: Annotated[list[Path], typer.Argument(help="Directories of `iha eval run`.")],
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Run the programs that the model wrote, in a jail.")
    ] = False,
) -> None:
    """Judge stored answers again, without the model."""
    from iha.cli.progress import bars
    from iha.evaluate.results import read_evaluation
    from iha.evaluate.run import rescore
    from iha.evaluate.suites import by_name

    for folder in folders:
        tasks = {name: by_name(name) for name in read_evaluation(folder).results}
        with bars() as progress:
            record = rescore(folder, tasks, allow_code=allow_code, progress=progress)
        for task, result in record.results.items():
            typer.echo(f"{folder}: {task}: " + ", ".join(f"{m} {v:.2f}" for m, v in result["metrics"].items()))


@group.command(cls=Command)
def table(
    folders: Annotated[list[Path], typer.Argument(help="Directories of `iha eval run`, e.g. runs/*.")],
    baseline: Annotated[
        str | None, typer.Option(help="The model that differences are taken to; by default the first.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where tables.md, tables.tex and tables.html go.")] = Path("out/eval-table"),
) -> None:
    """The paper's tables with these models, beside the paper's own rows."""
    from iha.evaluate.tables import paper_tables, read_models
    from iha.records import write_text

    with results_in(out) as folder:
        tables = paper_tables(read_models(folders), baseline)
        for each in tables:
            each.print()
        write_text(folder / "tables.md", "\n".join(each.markdown() for each in tables))
        write_text(folder / "tables.tex", "\n".join(each.latex() for each in tables))
        write_text(folder / "tables.html", "\n".join(each.html() for each in tables))
    typer.echo(f"tables: {folder}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError as error:
        raise ValueError(f"--lengths must be whole numbers, comma-separated, got {text!r}") from error
