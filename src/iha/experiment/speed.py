"""How fast each mechanism trains: all of them in turns in one process, on the data of their runs.

The speeds that runs report of themselves depend on what else the machine did meanwhile. Where this record exists, the
comparison at equal time uses it instead.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from iha.bench.measure import Times, Watch, take_turns
from iha.experiment.compare import BASELINE, SPEED_KIND, is_swept, read_runs
from iha.ops.heap import keep_memory
from iha.ops.products import choose_products
from iha.records import Progress, Record, silent
from iha.train.batches import Corpus
from iha.train.build import build_model, model_config
from iha.train.objective import Objective
from iha.train.optimise import build_optimiser
from iha.train.prepare import TOKENIZER, data_directory, has_shards
from iha.train.recipe import Recipe
from iha.train.step import gradient, update
from iha.train.tokenise import load_tokenizer
from iha.train.typed import build

PHASE = "pretrain"
BATCHES = 4  # different ones per turn


def measure_speed(
    records: Path, runs: Path, *, rounds: int, threads: int, command: str, progress: Progress = silent
) -> Record:
    """Tokens per second of a training step of every mechanism and variant that was pre-trained."""
    if rounds < 1 or threads < 1:
        raise ValueError(f"rounds and threads must be at least 1, got {rounds} and {threads}")
    chosen = _one_per_label(read_runs(records))
    if not chosen:
        raise ValueError(f"{records} has no record of a finished pre-training run")
    torch.set_num_threads(threads)
    settings = {"keep_memory": keep_memory(), "products": choose_products()}
    config = {"rounds": rounds, "threads": threads, "batches": BATCHES, **settings}
    record = Record.new(SPEED_KIND, command=command, config=config)
    watch = Watch()
    sides = {run.config["label"]: _steps(run, runs) for run in chosen}
    with progress.task("training steps in turns", total=1) as task:
        times = take_turns(sides, rounds)
        task.advance(1)
    reference = next((run.config["label"] for run in chosen if run.config["mechanism"] == BASELINE), next(iter(sides)))
    tokens = {run.config["label"]: _tokens(run) for run in chosen}
    return record.finished(_results(times, tokens, reference) | {"quiet": _judged(watch, times, reference)})


def _one_per_label(found: Sequence[Record]) -> list[Record]:
    """The first seed of each; runs of a sweep have the shapes of the others, and those that grow have no one speed."""
    chosen: dict[str, Record] = {}
    for run in sorted(found, key=lambda run: run.seed or 0):
        grows = run.config["recipe"].get("growth", {}).get("every") is not None
        if run.config["phase"] == PHASE and not is_swept(run.config["name"]) and not grows:
            chosen.setdefault(run.config["label"], run)
    return list(chosen.values())


def _tokens(run: Record) -> int:
    data = run.config["recipe"]["data"]
    return BATCHES * data["batch"] * data["context"]


def _steps(run: Record, runs: Path) -> Callable[[], None]:
    """A turn of this run: the first batches of its data, each a whole training step."""
    recipe = build(Recipe, run.config["recipe"], run.config["name"])
    shards = data_directory(recipe, runs / run.config["name"])
    if not has_shards(shards):
        raise ValueError(f"{run.config['name']}: its data is not in {shards}; `iha experiment scale-model` makes it")
    tokenizer = load_tokenizer(recipe.data.tokenizer, shards / TOKENIZER)
    model = build_model(recipe, model_config(recipe, tokenizer.size, tokenizer.end_id))
    objective, optimiser = Objective(model), build_optimiser(model, recipe.optimiser)
    corpus = Corpus(recipe.data, shards, tokenizer, recipe.seed)
    batches = [corpus.batch(step) for step in range(BATCHES)]

    def turn() -> None:
        for batch in batches:
            _, norm = gradient(objective, batch, batch.num_targets, 1, recipe.parallel.micro_batch)
            update(objective, optimiser, norm, recipe.optimiser.clip)

    return turn


def _results(times: Times, tokens: dict[str, int], reference: str) -> dict[str, object]:
    return {
        "reference": reference,
        "tokens_per_second": {side: tokens[side] / times.best(side) for side in times.rounds},
        "ratios": {side: times.ratios(reference, side) for side in times.rounds},  # of the reference's time to its own
    }


def _judged(watch: Watch, times: Times, reference: str) -> dict[str, object]:
    spreads = [times.spread(side, reference) for side in times.rounds if side != reference]
    return watch.judge(spreads).as_json()
