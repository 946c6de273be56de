"""A training run as data: what `recipes/*.yaml` say, typed and checked before anything is built."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from iha.train.typed import build, differences, override, parse_yaml

_LARGEST_COUNT = 10**9  # of steps and of generated documents
_LARGEST_STEP = 1 << 40  # tokens


@dataclass(frozen=True)
class Model:
    """A preset of `iha.models`, one of the five mechanisms, and any field of IHAConfig."""

    preset: str | None = None
    attention: Literal["iha", "global", "global_local", "talking_heads", "differential"] = "iha"
    config: dict[str, Any] = field(default_factory=dict)
    # "plain": every matrix at config.initializer_range. "scaled": embeddings at 1, and what is added to the residual
    # stream at 1/√(2 layers) of the range, so that tokens can be told apart in it from the first step.
    initialisation: Literal["plain", "scaled"] = "plain"
    init_from: str | None = (
        None  # a Hugging Face directory: weights to start from, e.g. of `iha export` or `iha convert`
    )

    def __post_init__(self) -> None:
        for owned, key in (("attention", "model.attention"), ("max_position_embeddings", "data.context")):
            if owned in self.config:
                raise ValueError(f"config.{owned} is set by {key}")


@dataclass(frozen=True)
class Tokenizer:
    kind: Literal["bytes", "file", "train", "hub"] = "bytes"
    path: str | None = None  # of "file": a tokenizer.json
    name: str | None = None  # of "hub"
    vocab_size: int = 4096  # of "train"
    end: str | None = None  # the token that ends a document; found by its usual names when not given

    def __post_init__(self) -> None:
        needed = {"file": "path", "hub": "name"}.get(self.kind)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"kind {self.kind!r} needs {needed}")
        if self.vocab_size < 300:
            raise ValueError(f"vocab_size must be at least 300 (256 bytes and special tokens), got {self.vocab_size}")


@dataclass(frozen=True)
class Source:
    """One part of the mixture."""

    name: str
    kind: Literal["stdlib", "text", "jsonl", "parquet", "huggingface", "generated"]
    weight: float = 1.0  # share of the sequences of a batch, relative to the other sources
    paths: list[str] = field(default_factory=list)  # of text, jsonl, parquet: files or patterns
    dataset: str | None = None  # of huggingface: its name or a directory
    subset: str | None = None
    split: str = "train"
    column: str = "text"  # of jsonl, parquet, huggingface: where the text is
    documents: Literal["file", "line"] = "file"  # of text: what a document is
    chat: Literal["chatml", "llama3"] | None = None  # rows are conversations, in this format
    generator: str | None = None  # of generated: a name in `iha.train.puzzles.PUZZLES`
    count: int = 0  # of generated: how many documents
    answers_only: bool = False  # of generated: loss on the answers and their working alone

    def __post_init__(self) -> None:
        if not self.name or any(character in self.name for character in "/\\. "):
            raise ValueError(f"name must be usable as a directory name, got {self.name!r}")
        if self.weight <= 0:
            raise ValueError(f"weight must be positive, got {self.weight}")
        if self.kind in ("text", "jsonl", "parquet") and not self.paths:
            raise ValueError(f"kind {self.kind!r} needs paths")
        if self.kind == "huggingface" and self.dataset is None:
            raise ValueError("kind 'huggingface' needs dataset")
        if self.kind == "generated" and (self.generator is None or self.count < 1):
            raise ValueError("kind 'generated' needs generator and count")
        if self.count > _LARGEST_COUNT:
            raise ValueError(f"count must be at most {_LARGEST_COUNT}, got {self.count}")
        if self.chat is not None and self.kind in ("stdlib", "text", "generated"):
            raise ValueError(f"chat is for rows with conversations, not for kind {self.kind!r}")


@dataclass(frozen=True)
class Data:
    sources: list[Source] = field(default_factory=lambda: [Source("stdlib", "stdlib")])
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    context: int = 512  # N, tokens of a sequence
    batch: int = 16  # sequences of a step, over all processes and accumulated micro-batches
    packing: Literal["stream", "whole"] = "stream"  # documents cut at sequence ends, or kept whole
    validation: float = 0.01  # share of the documents that is held out
    directory: str | None = None  # prepared shards; `data` in the run directory when not given

    def __post_init__(self) -> None:
        _positive(self, "context", "batch")
        if self.context * self.batch > _LARGEST_STEP:
            tokens = f"{self.batch} sequences of {self.context} tokens"
            raise ValueError(f"a step of {tokens} is taken for a mistake: at most {_LARGEST_STEP} tokens")
        if not self.sources:
            raise ValueError("sources: at least one is needed")
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise ValueError(f"sources: names must differ, got {names}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation is a share of the documents, 0 to 1, got {self.validation}")


@dataclass(frozen=True)
class Optimiser:
    """AdamW. Mixing parameters (alpha, R and what other mechanisms have in their place) are never decayed."""

    learning_rate: float = 1e-3  # at the peak
    mixing_learning_rate: float | None = None  # of the mixing parameters; as the others when not given
    train: Literal["all", "mixing"] = "all"  # "mixing": everything else is frozen
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1  # of matrices; norms, biases and mixing have none
    clip: float | None = 1.0  # norm of the gradient
    non_finite: Literal["stop", "skip"] = "stop"  # what to do with a step whose loss or gradient is not finite
    max_skipped: int = 20  # consecutive steps; after that the run stops anyway

    def __post_init__(self) -> None:
        _positive(self, "learning_rate", "epsilon", "clip", "mixing_learning_rate", "max_skipped")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up, then cosine decay to `final` of the peak learning rate."""

    steps: int = 1000
    warmup: int = 100
    final: float = 0.01

    def __post_init__(self) -> None:
        _positive(self, "steps")
        if self.steps > _LARGEST_COUNT:
            raise ValueError(f"steps must be at most {_LARGEST_COUNT}, got {self.steps}")
        if not 0 <= self.warmup < self.steps:
            raise ValueError(f"warmup must be fewer than steps: {self.warmup}, {self.steps}")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final is a fraction of the peak, got {self.final}")


@dataclass(frozen=True)
class Growth:
    """Pseudo-heads added during training, where the gradient asks for them; none unless `every` is given."""

    every: int | None = None  # steps
    count: int = 1  # places of a growth: a layer's pseudo-queries or its pseudo-keys, which are doubled
    until: int = 2  # pseudo-queries and pseudo-keys of a layer, at most
    flops: float | None = None  # attention and mixing, in units of global attention in every layer, at most

    def __post_init__(self) -> None:
        _positive(self, "every", "count", "until", "flops")


@dataclass(frozen=True)
class Checkpoint:
    every: int = 500  # steps; the last step is always saved
    keep: int = 2  # newest
    keep_every: int | None = None  # interval in steps of checkpoints that are never deleted
    asynchronous: bool = True

    def __post_init__(self) -> None:
        _positive(self, "every", "keep", "keep_every")


@dataclass(frozen=True)
class Parallel:
    """How the run uses the machine. None of it changes what is computed, beyond the order of sums."""

    micro_batch: int = 16  # sequences that a process takes at a time
    shards: int | None = None  # processes over which FSDP2 shards; replicated over the rest (HSDP); all when not given
    precision: Literal["float32", "bfloat16", "float64"] = "float32"  # of the products; weights stay at least float32
    activation_checkpointing: bool = False
    compile: bool = False
    loss_chunk: int | None = None  # compute logits for this many tokens at a time; all when not given

    def __post_init__(self) -> None:
        _positive(self, "micro_batch", "shards", "loss_chunk")


@dataclass(frozen=True)
class Validation:
    every: int = 500  # steps, and at the end
    sequences: int = 64  # of each source, at most

    def __post_init__(self) -> None:
        _positive(self, "every", "sequences")


@dataclass(frozen=True)
class Logging:
    every: int = 10  # steps
    tensorboard: bool = False
    wandb: str | None = None  # project
    trackio: str | None = None  # project

    def __post_init__(self) -> None:
        _positive(self, "every")


@dataclass(frozen=True)
class Recipe:
    name: str = "train"
    seed: int = 0
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    growth: Growth = field(default_factory=Growth)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    parallel: Parallel = field(default_factory=Parallel)
    validation: Validation = field(default_factory=Validation)
    logging: Logging = field(default_factory=Logging)

    def __post_init__(self) -> None:
        # The run directory is named after it when none is given.
        if not self.name or self.name.startswith(".") or any(character in self.name for character in "/\\\0"):
            raise ValueError(f"name must be usable as a directory name, got {self.name!r}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# May differ when a run is resumed: apart from the order of sums, these do not change the results.
MAY_CHANGE = ("parallel.", "logging.", "checkpoint.", "validation.", "data.directory", "name")


def read_recipe(path: Path, overrides: list[str] | tuple[str, ...] = ()) -> Recipe:
    """A recipe file with overrides `key.path=value`. ValueError names file, key and reason."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    settings = parse_yaml(text, str(path)) or {}
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: a recipe is a mapping of sections, got {type(settings).__name__}")
    for assignment in overrides:
        override(settings, assignment)
    settings.setdefault("name", path.stem)
    return build(Recipe, settings, str(path))


def check_continues(before: dict[str, Any], now: Recipe, where: str) -> None:
    """A run directory belongs to one recipe: ValueError names what has changed since."""
    begun = build(Recipe, before, where).as_dict()  # keys that are newer than the run get their defaults
    changed = [
        f"{key} was {old!r} and is {new!r}"
        for key, old, new in differences(begun, now.as_dict())
        if not key.startswith(MAY_CHANGE)
    ]
    if changed:
        raise ValueError(f"{where} holds a run of another recipe ({'; '.join(changed)}): choose another directory")


def _positive(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")
