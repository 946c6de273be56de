"""Which runs an experiment has: phases, mechanisms, variants and seeds, each a recipe with changes."""

import re
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from iha.experiment.variants import ABLATIONS, GROWTHS, LABELS, MECHANISMS, MIXING_RATES
from iha.train.build import model_config
from iha.train.growth import cost, numbers_of
from iha.train.recipe import Recipe, read_recipe

KIND = "scale-model-run"  # of a run's record
PHASES = ("pretrain", "adapt", "tune")

LOCAL_SHARE = 16  # of the context is a window of Global+Local: in the paper 512 of 8192, here the context is shorter

GROWTHS_OF_A_RUN = 20  # at most: the next growth comes a twentieth of the run after the one before
LARGEST_DEPTH = 1000

# How large: changes of every recipe. One core trains "small" at nine to fifteen thousand tokens per second.


def _two_cores(width: int) -> tuple[str, ...]:
    """Weights begin at 1/√width, embeddings at 1 (docs/scale-model.md says what pilot runs showed)."""
    return (
        f"model.config.hidden_size={width}", f"model.config.intermediate_size={4 * width}",
        "model.config.num_hidden_layers=5", "model.config.num_attention_heads=4",
        f"model.config.initializer_range={width**-0.5:.3g}", "model.config.tie_word_embeddings=false",
        "model.config.rope_parameters={rope_type: default, rope_theta: 10000.0}",
    )  # fmt: skip


SIZES: dict[str, tuple[str, ...]] = {
    "quick": _two_cores(64),  # the same model as small, hardly trained: see LENGTHS
    "small": _two_cores(64),  # 0.38 M parameters
    "medium": _two_cores(128),  # 1.2 M
    "160m": ("model.preset=160m", "model.initialisation=plain", "parallel.precision=bfloat16"),
    "2.4b": ("model.preset=paper-2.4b", "model.initialisation=plain", "parallel.precision=bfloat16"),
}
# What only one phase of a size has: the quick size writes more often, because it is short; the medium one has twice the
# context of the small one, in batches of as many tokens.
PHASE_CHANGES: dict[str, dict[str, tuple[str, ...]]] = {
    "quick": {
        "pretrain": ("validation.every=20", "logging.every=5"),
        "adapt": ("logging.every=2",),
        "tune": ("logging.every=2",),
    },
    "medium": {
        "pretrain": ("data.context=512", "data.batch=4", "parallel.micro_batch=4", "validation.every=250"),
        "adapt": ("data.context=2048", "data.batch=1", "parallel.micro_batch=1"),
    },
}
# Steps of the phases, in multiples of what the recipes say.
LENGTHS = {"quick": 0.05, "small": 1.0, "medium": 5.0, "160m": 32.0, "2.4b": 384.0}
COMMON = ("model.config.gated_mlp=false", "model.config.hidden_act=gelu", "model.config.num_pseudo_heads=2")


@dataclass(frozen=True)
class Run:
    """One training run. Its name is its directory."""

    name: str
    phase: str
    mechanism: str  # a key of MECHANISMS
    variant: str  # "" or a key of ABLATIONS
    seed: int
    learning_rate: float
    recipe: Recipe
    after: str | None = None  # the run whose weights it starts from
    conversion: dict[str, Any] | None = None  # those weights are converted first, or reduced: see `run`
    baseline: str | None = None  # the run that it is compared with; that of global attention when None

    @property
    def label(self) -> str:
        return LABELS[self.mechanism] + (f", {self.variant}" if self.variant else "")

    @property
    def tokens(self) -> int:
        return self.recipe.schedule.steps * self.recipe.data.batch * self.recipe.data.context

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name, "phase": self.phase, "mechanism": self.mechanism, "variant": self.variant,
            "label": self.label, "seed": self.seed, "learning_rate": self.learning_rate, "tokens": self.tokens,
            "conversion": self.conversion, "baseline": self.baseline,
        }  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What the command asks for."""

    size: str = "small"
    mechanisms: tuple[str, ...] = tuple(MECHANISMS)
    variants: tuple[str, ...] = ()  # of ABLATIONS, for IHA, pre-training only
    phases: tuple[str, ...] = PHASES
    seeds: tuple[int, ...] = (0,)
    learning_rates: tuple[float, ...] = ()  # a sweep of pre-training; the recipe's own when empty
    rates: tuple[tuple[str, float], ...] = ()  # mechanisms whose pre-training has another peak than the recipe's
    length: float | None = None  # steps in multiples of the recipe's; by size when None
    changes: tuple[str, ...] = field(default_factory=tuple)  # of every recipe, e.g. another text

    def __post_init__(self) -> None:
        for name, values, known in (
            ("size", (self.size,), SIZES),
            ("mechanisms", self.mechanisms, MECHANISMS),
            ("variants", self.variants, ABLATIONS),
            ("phases", self.phases, PHASES),
            ("rates", tuple(mechanism for mechanism, _ in self.rates), MECHANISMS),
        ):
            for value in values:
                if value not in known:
                    raise ValueError(f"{name}: {value!r} is not one of {', '.join(known)}")
        lengths = () if self.length is None else (self.length,)
        tuned = tuple(rate for _, rate in self.rates)
        positive = (("length", lengths), ("learning_rates", self.learning_rates), ("rates", tuned))
        for name, number in ((name, number) for name, numbers in positive for number in numbers):
            if not (isfinite(number) and number > 0):
                raise ValueError(f"{name} must be positive and finite, got {number}")
        if any(seed < 0 for seed in self.seeds) or not self.seeds:
            raise ValueError(f"seeds must be whole numbers from 0, got {self.seeds}")


def plan(settings: Settings, recipes: Path, out: Path) -> list[Run]:
    """All runs: first every run of one seed, then the next seed; earlier phases before those that need them."""
    runs = []
    for seed in settings.seeds:
        for phase in PHASES:
            if phase not in settings.phases:
                continue
            for mechanism in settings.mechanisms:
                for rate in settings.learning_rates or (None,):
                    runs.append(_run(settings, recipes, out, phase, mechanism, "", seed, rate))
            if phase == "pretrain":
                runs += [_run(settings, recipes, out, phase, "iha", name, seed, None) for name in settings.variants]
    return runs


def _run(
    settings: Settings,
    recipes: Path,
    out: Path,
    phase: str,
    mechanism: str,
    variant: str,
    seed: int,
    rate: float | None,
) -> Run:
    swept = rate is not None and phase == "pretrain"
    name = run_name(phase, mechanism, variant, seed, rate if swept else None)
    path = recipes / f"{phase}.yaml"
    own = PHASE_CHANGES.get(settings.size, {}).get(phase, ())
    changes = [f"name={name}", f"seed={seed}", *MECHANISMS[mechanism], *own]
    after = None
    if phase == "pretrain":
        local = [f"model.config.window=N/{LOCAL_SHARE}"] if mechanism == "global_local" else []
        context = read_recipe(path, [*own, *settings.changes]).data.context
        variable = [_window(change, context) for change in (*ABLATIONS.get(variant, ()), *local)]
        changes += [*SIZES[settings.size], *COMMON, *settings.changes, *variable]
    else:
        after = run_name(PHASES[PHASES.index(phase) - 1], mechanism, "", seed)
        changes += [f"model.init_from={out / after / 'export'}", tokenizer_of(out / after), *settings.changes]
    if rate is None:
        rate = dict(settings.rates).get(mechanism)
    if rate is not None and phase == "pretrain":
        changes.append(f"optimiser.learning_rate={rate}")
    changes.append(f"data.directory={shared_data(out, phase, seed)}")
    changes += steps_of(path, LENGTHS[settings.size] if settings.length is None else settings.length)
    recipe = read_recipe(path, changes)
    if variant in MIXING_RATES:
        mixing = MIXING_RATES[variant] * recipe.optimiser.learning_rate
        recipe = read_recipe(path, [*changes, f"optimiser.mixing_learning_rate={mixing}"])
    baseline = None
    if variant in GROWTHS:
        recipe = read_recipe(path, [*changes, *_growth(recipe, path, changes, *GROWTHS[variant])])
        baseline = run_name(phase, mechanism, f"P={GROWTHS[variant][0]} token index", seed)
    rate = recipe.optimiser.learning_rate
    return Run(name, phase, mechanism, variant, seed, rate, recipe, after, baseline=baseline)


def _window(change: str, context: int) -> str:
    """A change of a recipe in which N/d has become that part of the context."""
    return re.sub(r"=N/(\d+)$", lambda part: f"={max(1, context // int(part[1]))}", change)


def _growth(recipe: Recipe, path: Path, changes: list[str], P: int, count: int | None) -> list[str]:
    every = max(1, recipe.schedule.steps // GROWTHS_OF_A_RUN)
    if count is None:
        return [f"growth={{every: {every}, count: {2 * LARGEST_DEPTH}, until: {P}}}"]
    uniform = model_config(read_recipe(path, [*changes, f"model.config.num_pseudo_heads={P}"]), 1, None)
    flops = cost(uniform, numbers_of(uniform.layers), recipe.data.context)
    return [f"growth={{every: {every}, count: {count}, until: {2 * P}, flops: {flops}}}"]


def run_name(phase: str, mechanism: str, variant: str, seed: int, swept_rate: float | None = None) -> str:
    """A run's name is that of its directory and of its record."""
    words = "-".join(variant.lower().replace("=", "").replace(",", "").split())
    rate = "" if swept_rate is None else f"lr{swept_rate:g}"
    return "-".join(word for word in (phase, mechanism, words, rate, f"s{seed}") if word)


def converted(run: Path) -> Path:
    """Where a run keeps the converted weights that it starts from."""
    return run / "start"


def shared_data(out: Path, phase: str, seed: int) -> Path:
    """Tokenised once for all runs of a phase and seed: they see the same tokens in the same order."""
    return out / "data" / f"{phase}-s{seed}"


def tokenizer_of(run: Path) -> str:
    """The change of a recipe that takes the tokenizer of a finished run."""
    return "data.tokenizer={kind: file, path: " + str(run / "export" / "tokenizer.json") + "}"


def steps_of(recipe: Path, length: float) -> list[str]:
    """The changes that make a recipe this many times as long."""
    schedule = read_recipe(recipe).schedule
    steps = round(schedule.steps * length)
    return [f"schedule.steps={max(2, steps)}", f"schedule.warmup={min(schedule.warmup, max(1, steps // 10))}"]
