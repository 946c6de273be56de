"""Upcycling: is a converted model better than its original, when both are trained on for as long on the same data?

The original is the pre-trained model with global attention. A conversion computes the same function at step 0, so all
runs of a seed begin with the same loss. They are trained by the recipe of pre-training, with fewer steps and a lower
learning rate.
"""

from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from iha.experiment.plan import Run, converted, run_name, shared_data, steps_of, tokenizer_of
from iha.train.recipe import read_recipe

PHASE, SOURCE = "upcycle", "global"
RETRIEVAL_NAME = "retrieval-rich data"
RETRIEVAL_TEXT = 0.2  # of the weight that real text has otherwise; what remains asks for retrieval and chained facts
RATE = 0.5  # of the peak learning rate of pre-training


@dataclass(frozen=True)
class Variant:
    pseudo_heads: int | None = None  # None: not converted
    routed: bool = False
    layers: tuple[int, ...] | None = None  # those converted, from the end where negative; all when None
    frozen: bool = False  # everything but the mixing
    mixing_rate: float = 1.0  # in multiples of the learning rate
    retrieval: bool = False  # trained on retrieval-rich data, as its original


VARIANTS: dict[str, Variant] = {
    "": Variant(),
    "P=2": Variant(2),
    "P=4": Variant(4),
    "P=2, mixing rate x10": Variant(2, mixing_rate=10.0),
    "P=2, routed": Variant(2, routed=True),
    "P=2, routed, mixing rate x10": Variant(2, routed=True, mixing_rate=10.0),
    "P=1, frozen": Variant(1, frozen=True),  # a re-parametrisation: what mixing alone gives without pseudo-heads
    "P=2, frozen": Variant(2, frozen=True),
    "P=4, frozen": Variant(4, frozen=True),
    "P=2, routed, frozen": Variant(2, routed=True, frozen=True),
    "P=2, first two layers": Variant(2, layers=(0, 1)),
    "P=2, last two layers": Variant(2, layers=(-2, -1)),
    RETRIEVAL_NAME: Variant(retrieval=True),
    f"P=2, {RETRIEVAL_NAME}": Variant(2, retrieval=True),
    f"P=2, routed, {RETRIEVAL_NAME}": Variant(2, routed=True, retrieval=True),
}


@dataclass(frozen=True)
class Upcycling:
    """What the command asks for."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: tuple[int, ...] = (0,)
    length: float = 0.25  # steps in multiples of those of pre-training
    changes: tuple[str, ...] = field(default_factory=tuple)  # of every recipe

    def __post_init__(self) -> None:
        for variant in self.variants:
            if variant not in VARIANTS:
                known = ", ".join(repr(name) for name in VARIANTS)
                raise ValueError(f"variants: {variant!r} is not one of {known}")
        if not (isfinite(self.length) and self.length > 0):
            raise ValueError(f"length must be positive and finite, got {self.length}")
        if any(seed < 0 for seed in self.seeds) or not self.seeds:
            raise ValueError(f"seeds must be whole numbers from 0, got {self.seeds}")


def plan_upcycling(settings: Upcycling, recipes: Path, out: Path) -> list[Run]:
    """All runs, one seed after the other; the originals that others are compared with are always among them."""
    needed = {"", *(RETRIEVAL_NAME for name in settings.variants if VARIANTS[name].retrieval)}
    names = [name for name in VARIANTS if name in needed | set(settings.variants)]
    return [_run(settings, recipes / "pretrain.yaml", out, name, seed) for seed in settings.seeds for name in names]


def _run(settings: Upcycling, recipe: Path, out: Path, name: str, seed: int) -> Run:
    variant = VARIANTS[name]
    mechanism = SOURCE if variant.pseudo_heads is None else "iha"
    run = run_name(PHASE, mechanism, name, seed)
    after = run_name("pretrain", SOURCE, "", seed)
    start = out / after / "export" if variant.pseudo_heads is None else converted(out / run)
    changes = [
        f"name={run}", f"seed={seed}", f"model.attention={mechanism}", f"model.init_from={start}",
        tokenizer_of(out / after), f"data.directory={shared_data(out, PHASE, seed)}",
        f"optimiser.learning_rate={RATE * read_recipe(recipe).optimiser.learning_rate}",
        f"optimiser.train={'mixing' if variant.frozen else 'all'}", *steps_of(recipe, settings.length),
        *settings.changes,
    ]  # fmt: skip
    read = read_recipe(recipe, changes)
    if variant.retrieval:
        (text,) = (index for index, source in enumerate(read.data.sources) if source.name == "text")
        changes.append(f"data.sources.{text}.weight={RETRIEVAL_TEXT * read.data.sources[text].weight}")
    if variant.mixing_rate != 1:
        changes.append(f"optimiser.mixing_learning_rate={variant.mixing_rate * read.optimiser.learning_rate}")
    read = read_recipe(recipe, changes)
    conversion = None
    if variant.pseudo_heads is not None:
        layers = None if variant.layers is None else list(variant.layers)
        conversion = {
            "num_pseudo_heads": variant.pseudo_heads, "layers": layers, "routed": variant.routed, "seed": seed,
        }  # fmt: skip
    baseline = run_name(PHASE, SOURCE, RETRIEVAL_NAME if variant.retrieval else "", seed)
    return Run(run, PHASE, mechanism, name, seed, read.optimiser.learning_rate, read, after, conversion, baseline)
