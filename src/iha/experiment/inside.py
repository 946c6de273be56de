"""The pseudo-heads of finished runs of the scale model, measured on held-out data."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from iha.evaluate import pseudo_heads
from iha.evaluate.pseudo_heads import KIND, Tokens
from iha.experiment.compare import is_swept
from iha.experiment.plan import KIND as RUN
from iha.experiment.plan import shared_data
from iha.models.configuration import IHAConfig
from iha.models.generation import load
from iha.records import Progress, Record, output_directory, read_record, silent, write_record
from iha.train.batches import Corpus
from iha.train.build import build_model
from iha.train.recipe import Recipe, Tokenizer
from iha.train.tokenise import load_tokenizer
from iha.train.typed import build

DIRECTORY = "inside"  # below the runs' records


def look_inside(
    records: Path,
    runs: Path,
    *,
    command: str,
    sequences: int = 2,
    names: Sequence[str] = (),
    progress: Progress = silent,
) -> list[Record]:
    """The runs named, or all of IHA whose export is there, without a sweep's. Those done before are skipped."""
    found = {path.stem: path for path in sorted(records.glob("*-s*.json")) if (runs / path.stem / "export").is_dir()}
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{missing[0]}: no record in {records}, or no export in {runs}")
    chosen = list(names) or [name for name in found if not is_swept(name) and _has_pseudo_heads(runs / name)]
    if not chosen:
        raise ValueError(f"no run of {records} has pseudo-heads and an export in {runs}")
    directory = output_directory(records / DIRECTORY)
    done = []
    with progress.task("looking inside", total=len(chosen)) as task:
        for name in chosen:
            path = directory / f"{name}.json"
            if not path.exists():
                run = read_record(found[name], RUN)
                write_record(path, inside_of(run, runs, sequences, command, progress))
            done.append(read_record(path, KIND))
            task.advance(1, note=name)
    return done


def inside_of(run: Record, runs: Path, sequences: int, command: str, progress: Progress = silent) -> Record:
    """`sequences` held-out sequences of each source; mixing compared with the weights that the run began with."""
    if sequences < 1:
        raise ValueError(f"sequences must be at least 1, got {sequences}")
    facts = {key: value for key, value in run.config.items() if key != "recipe"}
    record = Record.new(KIND, command=command, config={**facts, "sequences": sequences}, seed=run.seed)
    recipe = build(Recipe, run.config["recipe"], run.config["name"])
    export = runs / run.config["name"] / "export"
    model, _ = load(str(export))
    text = held_out(recipe, shared_data(runs, run.config["phase"], recipe.seed), export, sequences)
    return record.finished(pseudo_heads.measure(model, text, initial_weights(recipe, export), progress))


def held_out(recipe: Recipe, shards: Path, export: Path, sequences: int) -> Tokens:
    """The first held-out sequences of every source of a run's data."""
    if not shards.is_dir():
        raise ValueError(f"{shards} is missing: the run's data are needed, for sequences that it was not trained on")
    tokenizer = load_tokenizer(Tokenizer("file", path=str(export / "tokenizer.json"), end=recipe.data.tokenizer.end))
    corpus = Corpus(recipe.data, shards, tokenizer, recipe.seed)
    batches = [
        corpus.validation_batch(name, numbers)
        for name in corpus.sources["validation"]
        if (numbers := corpus.validation(name, sequences))
    ]
    tokens = torch.cat([batch.tokens for batch in batches])
    documents = [torch.zeros_like(b.tokens) if b.documents is None else b.documents for b in batches]
    return Tokens(tokens, torch.cat([batch.labels for batch in batches]), torch.cat(documents))


def initial_weights(recipe: Recipe, export: Path) -> dict[str, Tensor] | None:
    """The weights before the first step; None where the run's start has been removed."""
    start = recipe.model.init_from
    if start is not None and not Path(start).is_dir():
        return None
    return build_model(recipe, IHAConfig.from_pretrained(export)).state_dict()


def _has_pseudo_heads(run: Path) -> bool:
    config = IHAConfig.from_pretrained(run / "export")
    return any(spec.is_interleaved and spec.num_pseudo_heads > 1 for spec in config.layers)
