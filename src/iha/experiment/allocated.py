"""Allocation: is a model whose layers have different numbers of pseudo-heads better than one with the same in all?

The source is a pre-trained model with uniform pseudo-heads. It is reduced to a share of its FLOPs twice, by the best
allocation and by the best uniform numbers (`iha allocate` chooses both, on the same text). Both are trained on for as
long, on the same data, beside the source itself. Neither costs more than the share: what differs is where the
pseudo-heads and the windows are.
"""

from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from iha.convert.resize import Kept, resized
from iha.evaluate.allocation import KIND, allocate
from iha.evaluate.budget import Budget
from iha.evaluate.pseudo_heads import Tokens
from iha.experiment.plan import Run, converted, run_name, shared_data, steps_of, tokenizer_of
from iha.experiment.upcycle import RATE
from iha.models.generation import load
from iha.models.modeling import IHAForCausalLM
from iha.records import Record, output_directory, write_record
from iha.train.batches import Corpus
from iha.train.growth import cost, numbers_of
from iha.train.recipe import Recipe, Tokenizer, read_recipe
from iha.train.tokenise import load_tokenizer

PHASE, SOURCE = "allocate", "P=4 token index"
VARIANTS = ("", "uniform", "allocated")  # the source itself; the others are reduced
WINDOWS = (1.0, 0.5)  # to choose from, as shares of the source's
BATCHES = 4  # of training data that the choice is made on


@dataclass(frozen=True)
class Allocation:
    """What the command asks for."""

    share: float = 0.5  # of the source's FLOPs of attention and mixing
    seeds: tuple[int, ...] = (0,)
    length: float = 0.25  # steps in multiples of those of pre-training
    changes: tuple[str, ...] = field(default_factory=tuple)  # of every recipe

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")
        if not (isfinite(self.length) and self.length > 0):
            raise ValueError(f"length must be positive and finite, got {self.length}")
        if any(seed < 0 for seed in self.seeds) or not self.seeds:
            raise ValueError(f"seeds must be whole numbers from 0, got {self.seeds}")


def plan_allocation(settings: Allocation, recipes: Path, out: Path) -> list[Run]:
    """All runs, one seed after the other."""
    return [
        _run(settings, recipes / "pretrain.yaml", out, variant, seed) for seed in settings.seeds for variant in VARIANTS
    ]


def _run(settings: Allocation, recipe: Path, out: Path, variant: str, seed: int) -> Run:
    name, after = run_name(PHASE, "iha", variant, seed), run_name("pretrain", "iha", SOURCE, seed)
    changes = [
        f"name={name}", f"seed={seed}", "model.attention=iha", tokenizer_of(out / after),
        f"model.init_from={converted(out / name) if variant else out / after / 'export'}",
        f"data.directory={shared_data(out, PHASE, seed)}",
        f"optimiser.learning_rate={RATE * read_recipe(recipe).optimiser.learning_rate}",
        *steps_of(recipe, settings.length), *settings.changes,
    ]  # fmt: skip
    read = read_recipe(recipe, changes)
    # The choice is made on batches that come after those that the source was trained on.
    unseen = read_recipe(recipe).schedule.steps
    conversion = {"choice": variant, "share": settings.share, "first_batch": unseen} if variant else None
    compared_with = {"allocated": "uniform", "uniform": ""}.get(variant, "")
    baseline = run_name(PHASE, "iha", compared_with, seed)
    return Run(name, PHASE, "iha", variant, seed, read.optimiser.learning_rate, read, after, conversion, baseline)


def reduce(
    source: Path,
    destination: Path,
    recipe: Recipe,
    shards: Path,
    *,
    choice: str,  # "allocated" | "uniform"
    share: float,
    first_batch: int,  # of those that the choice is made on
    command: str,
) -> None:
    """The source's export reduced to a share of its FLOPs, with the record of what was measured beside the weights."""
    model, _ = load(str(source))
    assert isinstance(model, IHAForCausalLM)
    N = recipe.data.context
    budget = Budget(flops=share * cost(model.config, numbers_of(model.config.layers), N))
    record = Record.new(KIND, command=command, config={"source": str(source), "share": share, "windows": WINDOWS})
    smaller, results = allocate(model, _text(recipe, source, shards, first_batch), budget, N, WINDOWS)
    if choice == "uniform":
        if results["uniform"] is None:
            raise ValueError(f"no uniform numbers of pseudo-heads cost at most {share:g} of {source}")
        smaller = resized(model, {int(index): _kept(part) for index, part in results["uniform"]["layers"].items()})
    output_directory(destination)
    smaller.save_pretrained(destination)
    write_record(destination / "allocation.json", record.finished(results))


def _text(recipe: Recipe, source: Path, shards: Path, first: int) -> Tokens:
    tokenizer = load_tokenizer(Tokenizer("file", path=str(source / "tokenizer.json"), end=recipe.data.tokenizer.end))
    corpus = Corpus(recipe.data, shards, tokenizer, recipe.seed)
    batches = [corpus.batch(step) for step in range(first, first + BATCHES)]
    documents = [torch.zeros_like(b.tokens) if b.documents is None else b.documents for b in batches]
    tokens, labels = torch.cat([b.tokens for b in batches]), torch.cat([b.labels for b in batches])
    return Tokens(tokens, labels, torch.cat(documents))


def _kept(part: dict[str, Any]) -> Kept:
    return Kept(tuple(part["queries"]), tuple(part["keys"]), part["window"])
