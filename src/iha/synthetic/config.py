"""What a run is: every number that decides its outcome, and the scales by name."""

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from iha.layers.initialisation import INITIALISATIONS
from iha.layers.mechanisms import find_mechanism
from iha.synthetic.model import MODELS, NORMS, OFFSETS, POSITIONS, WEIGHTS
from iha.synthetic.tasks import TASKS, Task

# Adam and AdamW differ in weight decay only: an L2 penalty or decoupled. SGD has momentum 0.9.
OPTIMISERS = ("adamw", "adam", "sgd")


@dataclass(frozen=True)
class RunConfig:
    """One training run; a pure function of this, up to the rounding of the machine."""

    task: str
    mechanism: str
    sizes: tuple[int, ...]
    train_examples: int = 40_000
    validation_examples: int = 5_000
    test_examples: int = 5_000
    width: int = 64
    num_heads: int = 8  # H
    num_pseudo_heads: int = 8  # P, of IHA; 1 for all others
    init: str = "one_hot"  # of alpha and R, of IHA; "" for all others
    positions: str = "1d"
    batch_size: int = 64
    learning_rate: float = 1e-3
    mixing_rate: float = 1.0  # learning rate of alpha and R, as a factor; 1 for all others
    epochs: int = 200
    patience: int = 10
    seed: int = 0
    model: str = "ours"
    norm: str = "pre"
    weight_decay: float = 0.0
    num_pseudo_keys: int | None = None  # P_k, of IHA; P when None
    window: int | None = None  # of the second keys of 2-simplicial attention, in tokens; None for all others
    optimiser: str = "adamw"
    weights: str = "torch"
    offsets: str = "none"  # of the second keys and values of 2-simplicial attention; "none" for all others

    def __post_init__(self) -> None:
        with suppress(ValueError):  # an unknown mechanism is reported by `check`
            object.__setattr__(self, "mechanism", find_mechanism(self.mechanism).name)
        if self.num_pseudo_keys == self.num_pseudo_heads:  # one run, one config
            object.__setattr__(self, "num_pseudo_keys", None)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RunConfig":
        """A config from `as_json`. Fields that did not exist yet get the value that was fixed at that time."""
        return cls(**(content | {"sizes": tuple(content["sizes"])}))

    def continues(self, earlier: "RunConfig") -> bool:
        """Whether this is the same run, allowed at least as many epochs: the limit does not change what is trained."""
        return self.epochs >= earlier.epochs and replace(earlier, epochs=self.epochs) == self

    @property
    def has_pseudo_heads(self) -> bool:
        return find_mechanism(self.mechanism).has_pseudo_heads

    @property
    def data(self) -> Task:
        return replace(TASKS[self.task], sizes=self.sizes)

    @property
    def name(self) -> str:
        """The run's file name: readable, and unique within a sweep."""
        parts = [self.task, *([] if self.model == "ours" else [self.model]), self.mechanism, f"H{self.num_heads}"]
        if self.has_pseudo_heads:
            keys = "" if self.num_pseudo_keys is None else f"x{self.num_pseudo_keys}"
            parts += [f"P{self.num_pseudo_heads}{keys}", self.init]
            parts += [] if self.mixing_rate == 1 else [f"mix{self.mixing_rate:g}"]
        parts += [] if self.window is None else [f"win{self.window}"]
        parts += [] if self.offsets == "none" else [f"offsets_{self.offsets}"]
        batch = [] if self.batch_size == 64 else [f"b{self.batch_size}"]
        norm = [] if self.norm == "pre" else [self.norm]
        decay = [] if self.weight_decay == 0 else [f"wd{self.weight_decay:g}"]
        optimiser = [] if self.optimiser == "adamw" else [self.optimiser]
        weights = [] if self.weights == "torch" else [self.weights]
        last = [*norm, *weights, *batch, *optimiser, f"lr{self.learning_rate:g}", *decay, f"s{self.seed}"]
        return "-".join([*parts, f"w{self.width}", self.positions, *last])

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"sizes": list(self.sizes)}

    def check(self) -> None:
        """Raise every error that can be detected before training starts."""
        _one_of("task", self.task, tuple(TASKS))
        find_mechanism(self.mechanism)
        _one_of("positions", self.positions, POSITIONS)
        _one_of("model", self.model, MODELS)
        _one_of("norm", self.norm, NORMS)
        _one_of("optimiser", self.optimiser, OPTIMISERS)
        _one_of("weights", self.weights, WEIGHTS)
        _one_of("offsets", self.offsets, OFFSETS)
        if self.offsets != "none" and self.mechanism != "simplicial":
            raise ValueError(f"offsets={self.offsets!r} are those of 2-simplicial attention, not of {self.mechanism}")
        if self.has_pseudo_heads:
            _one_of("init", self.init, tuple(INITIALISATIONS))
        if self.positions == "2d" and not TASKS[self.task].grid:
            raise ValueError(f"positions='2d' need tokens on a grid; those of task {self.task!r} are not")
        self.data.check()
        counts = {"train_examples", "validation_examples", "test_examples", "width", "num_heads", "num_pseudo_heads"}
        for name in sorted(counts | {"batch_size", "epochs", "patience"}):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "mixing_rate"):
            if not 0 < getattr(self, name) < 1000:
                raise ValueError(f"{name} must be positive (and finite), got {getattr(self, name)}")
        if not 0 <= self.weight_decay < 1:
            raise ValueError(f"weight_decay must be in [0, 1), got {self.weight_decay}")
        if self.window is not None and (self.mechanism != "simplicial" or self.window < 1):
            raise ValueError(
                f"window is that of the second keys of 2-simplicial attention, at least 1; got {self.window} with "
                f"{self.mechanism}"
            )
        if self.num_pseudo_keys is not None and self.num_pseudo_keys < 1:
            raise ValueError(f"num_pseudo_keys must be at least 1, got {self.num_pseudo_keys}")
        if self.init == "paired_heads" and (self.num_heads % self.num_pseudo_heads or self.num_pseudo_keys is not None):
            raise ValueError(
                f"init='paired_heads' needs P pseudo-heads, for keys too, that divide the heads: {self.num_heads} "
                f"heads, {self.num_pseudo_heads} pseudo-queries, {self.num_pseudo_keys or self.num_pseudo_heads} keys"
            )
        if self.width % self.num_heads:
            raise ValueError(f"num_heads must divide the width: {self.num_heads} heads, width {self.width}")


@dataclass(frozen=True)
class Scale:
    """How much of the paper's protocol to run: the defaults that `--scale` sets and other options override."""

    num_sizes: int | None = None  # only the smallest of the task's sizes
    max_size: int | None = None  # the sizes up to this one, instead
    sizes: tuple[int, ...] | None = None  # or these
    train_examples: int = 40_000
    held_out_examples: int = 5_000  # validation and test, each
    heads: tuple[int, ...] = (8,)
    widths: tuple[int, ...] = (64,)
    batch_sizes: tuple[int, ...] = (64,)
    learning_rates: tuple[float, ...] = (1e-3, 1e-4)
    epochs: int = 200  # at most; patience usually ends a run
    patience: int = 10
    seeds: tuple[int, ...] = (0, 1, 2)
    model: str = "ours"
    norms: tuple[str, ...] = ("pre",)
    weight_decays: tuple[float, ...] = (0.0,)
    optimisers: tuple[str, ...] = ("adamw",)
    weights: tuple[str, ...] = ("torch",)


SCALES = {
    "quick": Scale(
        num_sizes=1,
        train_examples=8_000,
        held_out_examples=1_000,
        heads=(2,),
        learning_rates=(1e-3,),
        epochs=8,
        seeds=(0,),
    ),
    "small": Scale(num_sizes=2, train_examples=20_000, held_out_examples=2_000, learning_rates=(1e-3,), epochs=16),
    "paper": Scale(model="paper", widths=(128,), epochs=1000),  # the paper names no limit: patience ends these
}


def grid(
    task: str,
    mechanisms: Sequence[str],
    scale: Scale,
    *,
    pseudo_heads: Sequence[int] = (),  # P = H when empty
    pseudo_keys: Sequence[int] = (),  # P_k of each P in `pseudo_heads`; P_k = P when empty
    inits: Sequence[str] = ("one_hot",),
    positions: Sequence[str] = ("1d",),
    mixing_rates: Sequence[float] = (1.0,),
    windows: Sequence[int | None] = (None,),  # of 2-simplicial attention
    offsets: Sequence[str] = ("none",),  # of 2-simplicial attention
) -> list[RunConfig]:
    """All runs of a sweep. Seeds are the outermost loop, so a sweep stopped early has compared everything once."""
    _one_of("task", task, tuple(TASKS))
    for mechanism in mechanisms:
        find_mechanism(mechanism)
    if pseudo_keys and len(pseudo_keys) != len(pseudo_heads):
        raise ValueError(f"pseudo_keys must have one number for each of pseudo_heads {pseudo_heads}, got {pseudo_keys}")
    sizes = _sizes(TASKS[task], scale)
    runs: dict[RunConfig, None] = {}
    choices: Iterable[tuple] = itertools.product(
        scale.seeds, scale.optimisers, scale.weights, scale.learning_rates, scale.weight_decays, scale.norms,
        scale.batch_sizes, scale.widths, positions, scale.heads, mechanisms,
    )  # fmt: skip
    for seed, optimiser, weights, rate, decay, norm, batch_size, width, place, heads, mechanism in choices:
        plain = RunConfig(
            task, mechanism, sizes, scale.train_examples, scale.held_out_examples, scale.held_out_examples,
            width, heads, 1, "", place, batch_size, rate, 1.0, scale.epochs, scale.patience, seed,
            scale.model, norm, decay, optimiser=optimiser, weights=weights,
        )  # fmt: skip
        if not plain.has_pseudo_heads:
            seconds = itertools.product(windows, offsets) if plain.mechanism == "simplicial" else [(None, "none")]
            runs |= dict.fromkeys(replace(plain, window=window, offsets=added) for window, added in seconds)
            continue
        numbers = zip(pseudo_heads or (heads,), pseudo_keys or (None,) * max(1, len(pseudo_heads)), strict=True)
        for (P, P_k), init, mixing_rate in itertools.product(numbers, inits, mixing_rates):
            own = {"num_pseudo_heads": P, "num_pseudo_keys": P_k, "init": init, "mixing_rate": mixing_rate}
            runs[replace(plain, **own)] = None
    for run in runs:
        run.check()
    return list(runs)


def _sizes(task: Task, scale: Scale) -> tuple[int, ...]:
    if scale.sizes is not None:
        return scale.sizes
    if scale.max_size is None:
        return task.sizes[: scale.num_sizes]
    sizes = tuple(size for size in task.sizes if size <= scale.max_size)
    if not sizes:
        raise ValueError(f"no size of task {task.name!r} is at most {scale.max_size}: it has {task.sizes}")
    return sizes


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def choose_scale(name: str, **changes: object) -> Scale:
    """A scale by name, with the given options in place of its defaults."""
    _one_of("scale", name, tuple(SCALES))
    return replace(SCALES[name], **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]


def words(text: str) -> tuple[str, ...]:
    """A comma-separated option."""
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise ValueError(f"expected words separated by commas, got {text!r}")
    return found


def integers(text: str | None) -> tuple[int, ...] | None:
    """A comma-separated option of whole numbers; None when it was not given."""
    return None if text is None else tuple(_number(word, int, text) for word in words(text))


def decimals(text: str | None) -> tuple[float, ...] | None:
    """A comma-separated option of numbers; None when it was not given."""
    return None if text is None else tuple(_number(word, float, text) for word in words(text))


def _number(word: str, kind: type, text: str) -> Any:
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"expected {kind.__name__}s separated by commas, got {text!r}") from None
