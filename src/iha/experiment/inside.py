"""The pseudo-heads of finished runs of the scale model, measured on held-out data."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from iha.evaluate import pseudo_heads
from iha.evaluate.pseudo_heads import KIND, Tokens
from iha.experiment.finished import for_each_finished
from iha.experiment.plan import shared_data
from iha.models.configuration import IHAConfig
from iha.models.generation import load
from iha.records import Progress, Record, silent
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
    return for_each_finished(
        records, runs, lambda run, _: inside_of(run, runs, sequences, command, progress), directory=DIRECTORY,
        kind=KIND, title="looking inside", names=names, wanted="pseudo-heads and an export", has_it=_has_pseudo_heads,
        progress=progress,
    )  # fmt: skip


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
    """The weights before the first step; None where the run's start has been removed, or where it has grown since."""
    start = recipe.model.init_from
    if (start is not None and not Path(start).is_dir()) or recipe.growth.every is not None:
        return None
    return build_model(recipe, IHAConfig.from_pretrained(export)).state_dict()


def _has_pseudo_heads(run: Path) -> bool:
    config = IHAConfig.from_pretrained(run / "export")
    return any(spec.is_interleaved and spec.num_pseudo_heads > 1 for spec in config.layers)
