"""The results of `iha flops`: the cost of every mechanism and schedule, and the matched windows, as rows of numbers."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from iha.accounting.cache_bytes import layer_cache_bytes, schedule_cache_bytes
from iha.accounting.decoding import DecodingStep, decoding_step
from iha.accounting.flops import (
    kernel_flops,
    layer_flops,
    layer_parameters,
    ratio_to_global,
    schedule_flops,
    schedule_parameters,
)
from iha.accounting.gpus import GPUS
from iha.accounting.matching import MatchedWindow, matched_window
from iha.accounting.mechanisms import AttentionShape, layer_of
from iha.layers.costs import Flops, Parameters
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import (
    GLOBAL_EVERY,
    LOCAL_WINDOW,
    LayerSpec,
    Schedule,
    flop_matched_window,
    named_schedule,
)
from iha.ops.pairs import CONVENTIONS
from iha.records import Record

SCHEDULES = ("global", "global_local", "iha", "talking_heads", "differential")  # those of the paper's experiments
EVERYTHING = ("projections", "mixing", "attention")
ROOFLINES = ("h100", "h200")
_PATTERN = GLOBAL_EVERY


@dataclass(frozen=True)
class Question:
    """What is asked. `window` or `match` sets the window of the local IHA layers; the default is N/(2·P_q·P_k)."""

    shape: AttentionShape
    num_tokens: int  # N
    num_pseudo_heads: int = 2  # P
    num_layers: int = 26
    window: int | None = None
    match: str | None = None  # a convention: take the window that costs as much as global attention under it
    schedule: str | None = None  # the name of one schedule; the paper's five when None
    element_size: int = 2  # bytes per cached number
    num_pseudo_keys: int | None = None  # P_k; P when None

    def __post_init__(self) -> None:
        if self.num_tokens < 1:
            raise ValueError(f"num_tokens must be at least 1, got {self.num_tokens}")
        if self.element_size < 1:
            raise ValueError(f"element_size must be at least 1 byte, got {self.element_size}")
        if self.match is not None and self.match not in CONVENTIONS:
            raise ValueError(f"match must be one of {CONVENTIONS}, got {self.match!r}")
        if self.match is not None and self.window is not None:
            raise ValueError(f"window={self.window} and match={self.match!r}: give one of them")

    def local_window(self) -> int:
        if self.window is not None:
            return self.window
        if self.match is not None:
            return self.solve(self.match).window
        return flop_matched_window(self.num_tokens, **self.numbers)

    @property
    def numbers(self) -> dict[str, Any]:
        """How many pseudo-heads an IHA layer has, as keywords."""
        return {"num_pseudo_heads": self.num_pseudo_heads, "num_pseudo_keys": self.num_pseudo_keys}

    def solve(
        self, convention: str, target: Fraction | int = 1, parts: tuple[str, ...] = ("attention",)
    ) -> MatchedWindow:
        # Solved for one repetition of the pattern: the paper states 3/5 for it. With target 1 depth does not matter.
        def schedule(window: int) -> Schedule:
            return named_schedule("iha", _PATTERN, **self.numbers, window=window)

        return matched_window(
            self.shape, self.num_tokens, schedule, convention=convention, target=target, parts=parts
        )  # fmt: skip


@dataclass(frozen=True)
class LayerRow:
    """One layer. FLOPs are exact, for one forward pass over N tokens. Bytes are for one sequence."""

    mechanism: str
    window: int | None
    num_pseudo_heads: int  # P_q
    num_pseudo_keys: int  # P_k
    parameters: Parameters
    flops: Flops
    attention_to_global: float  # attention plus mixing, divided by the attention of a global multi-head layer
    kernel_flops: Flops | None  # executed by a flash kernel in tiles of 128 x 128
    cache_bytes: int | None
    pseudo_head_cache_bytes: int | None
    flash_obstacle: str | None
    patterns_per_head: int


@dataclass(frozen=True)
class ScheduleRow:
    """A model's attention layers together."""

    schedule: str
    layers: dict[str, int]  # how many of each kind
    parameters: Parameters
    flops: Flops
    cache_bytes: int | None
    attention_to_global: dict[str, float]  # by convention
    with_mixing: float  # the ratio in the exact convention, with mixing
    with_projections: float  # with mixing and projections, on both sides


@dataclass(frozen=True)
class MatchRow:
    """The matched window for a pattern of four local IHA layers per global multi-head layer."""

    convention: str
    parts: tuple[str, ...]
    target: float
    match: MatchedWindow | None  # None if even a window of one token costs more than the target


@dataclass(frozen=True)
class DecodingRow:
    """One decoding step of one layer behind N cached tokens, and the roofline's lower bounds for its time."""

    mechanism: str
    window: int | None
    num_pseudo_heads: int
    num_pseudo_keys: int
    step: DecodingStep
    flops_per_byte: float
    seconds: dict[str, float]  # by GPU


@dataclass(frozen=True)
class Answer:
    question: Question
    local_window: int
    layers: list[LayerRow]
    schedules: list[ScheduleRow]
    matches: list[MatchRow]
    decoding: list[DecodingRow]
    ridges: dict[str, float]  # FLOPs per byte, by GPU: a step below it waits for memory

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def record(question: Question, command: str) -> Record:
    """The answer as a `Record`, the envelope of every result file."""
    begun = Record.new("flops", command=command, config=asdict(question))
    return begun.finished(answer(question).as_json())


def answer(question: Question) -> Answer:
    shape, N = question.shape, question.num_tokens
    window = question.local_window()
    baseline = layer_flops(shape, LayerSpec(), N)
    return Answer(
        question,
        window,
        [_layer_row(question, spec, baseline) for spec in _specs(question, window)],
        list(_schedule_rows(question, window)),
        list(_match_rows(question)),
        list(_decoding_rows(question, window)),
        {name: GPUS[name].ridge for name in ROOFLINES},
    )


def _specs(question: Question, window: int) -> Iterator[LayerSpec]:
    yield LayerSpec()
    yield LayerSpec(window=LOCAL_WINDOW)
    yield LayerSpec("iha", None, **question.numbers)
    yield LayerSpec("iha", window, **question.numbers)
    for name in MECHANISMS:
        spec = LayerSpec(name)
        if name == LayerSpec().mechanism or spec.is_interleaved:
            continue
        if _refuses(question.shape, spec):
            continue  # it pairs heads, and these head counts cannot be paired
        yield spec
        if not layer_of(question.shape, spec).unit_costs().attention_per_pair:
            # It attends to pairs of tokens only, and all pairs are affordable only for short sequences. So a second row
            # shows the window at which it costs as much as global attention.
            single = matched_window(question.shape, question.num_tokens, lambda w: (replace(spec, window=w),))  # noqa: B023
            yield replace(spec, window=single.window)


def _refuses(shape: AttentionShape, spec: LayerSpec) -> bool:
    layer_of(shape, LayerSpec())  # a shape that even the baseline rejects is the caller's mistake: raise
    try:
        layer_of(shape, spec)
    except ValueError:
        return True
    return False


def _schedules(question: Question) -> tuple[str, ...]:
    if question.schedule is not None:
        return ("global",) if question.schedule == "global" else ("global", question.schedule)
    odd = _refuses(question.shape, LayerSpec("differential"))
    return tuple(name for name in SCHEDULES if not (odd and name == "differential"))


def _layer_row(question: Question, spec: LayerSpec, baseline: Flops) -> LayerRow:
    shape, N, size = question.shape, question.num_tokens, question.element_size
    layer, flops = layer_of(shape, spec), layer_flops(shape, spec, N)
    return LayerRow(
        spec.mechanism, spec.window, *layer.visibility.per_token, layer_parameters(shape, spec), flops,
        (flops.attention + flops.mixing) / baseline.attention, kernel_flops(shape, spec, N),
        layer_cache_bytes(shape, spec, N, size), layer_cache_bytes(shape, spec, N, size, pseudo_heads=True),
        layer.flash_obstacle(), layer.unit_costs().patterns_per_head,
    )  # fmt: skip


def _schedule_rows(question: Question, window: int) -> Iterator[ScheduleRow]:
    for name in _schedules(question):
        own = question.numbers | {"window": window} if name == "iha" else {}
        yield _schedule_row(question, name, named_schedule(name, question.num_layers, **own))
        if name == "iha" and question.num_layers % _PATTERN:  # the paper's 3/5 needs whole patterns
            yield _schedule_row(question, "iha, the pattern once", named_schedule(name, _PATTERN, **own))


def _schedule_row(question: Question, name: str, schedule: Schedule) -> ScheduleRow:
    shape, N = question.shape, question.num_tokens
    kinds: dict[str, int] = {}
    for spec in schedule:
        reach = "global" if spec.window is None else f"window {spec.window}"
        kind = f"{spec.mechanism}, {reach}" + (
            f", P = {pseudo_numbers(*spec.per_token)}" if spec.is_interleaved else ""
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    return ScheduleRow(
        name, kinds, schedule_parameters(shape, schedule), schedule_flops(shape, schedule, N),
        schedule_cache_bytes(shape, schedule, N, question.element_size),
        {c: float(ratio_to_global(shape, schedule, N, c)) for c in CONVENTIONS},
        float(ratio_to_global(shape, schedule, N, "exact", ("mixing", "attention"))),
        float(ratio_to_global(shape, schedule, N, "exact", EVERYTHING)),
    )  # fmt: skip


def _match_rows(question: Question) -> Iterator[MatchRow]:
    cases: tuple[tuple[str, tuple[str, ...], Fraction], ...] = (
        ("paper", ("attention",), Fraction(3, 5)),
        ("paper", ("attention",), Fraction(1)),
        ("causal", ("attention",), Fraction(1)),
        ("exact", ("attention",), Fraction(1)),
        ("exact", ("attention", "mixing"), Fraction(1)),
    )
    for convention, parts, target in cases:
        try:
            found: MatchedWindow | None = question.solve(convention, target, parts)
        except ValueError:
            found = None
        yield MatchRow(convention, parts, float(target), found)


def _decoding_rows(question: Question, window: int) -> Iterator[DecodingRow]:
    local, everywhere = (LayerSpec("iha", reach, **question.numbers) for reach in (window, None))
    for spec in (LayerSpec(), everywhere, local):
        step = decoding_step(question.shape, spec, question.num_tokens, question.element_size)
        if step is not None:
            bounds = {name: GPUS[name].seconds(step.flops, step.traffic) for name in ROOFLINES}
            yield DecodingRow(spec.mechanism, spec.window, *spec.per_token, step, step.intensity, bounds)


def pseudo_numbers(P_q: int, P_k: int) -> str:
    """P as the tables show it: one number, or P_q × P_k."""
    return str(P_q) if P_q == P_k else f"{P_q} × {P_k}"
