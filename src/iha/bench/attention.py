"""Speed and memory of interleaved head attention beside SDPA: what `iha bench attention` measures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.accounting.mechanisms import AttentionShape
from iha.bench.decoding import decoding_costs
from iha.bench.measure import Memory, Watch, allocated, take_turns
from iha.bench.mechanisms import layer_costs
from iha.layers.schedule import flop_matched_window
from iha.ops.backends.band_native import kernel_used
from iha.ops.heap import keep_memory
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.visibility import Visibility
from iha.records import Progress, Record, silent

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Settings:
    """What `iha bench attention` measures."""

    tokens: int = 4096  # N
    heads: int = 8  # H
    head_dim: int = 64  # D
    pseudo_heads: tuple[int, ...] = (2, 4)  # P
    dtype: str = "float32"
    threads: int | None = None
    repeats: int = 9  # three runs of three rounds
    quick: bool = False  # the comparisons alone: neither growth nor mechanisms
    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 32768)
    longest_sdpa: int = 8192  # quadratic: at 32k one round takes longer than all the rest
    growth_window: int = 128
    decoding_window: int = 512
    mechanism_tokens: int = 256  # two of the mechanisms are cubic
    keep_memory: bool = True  # freed memory stays with the process, for both sides
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {tuple(DTYPES)}, got {self.dtype!r}")
        for name in ("tokens", "heads", "head_dim", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.pseudo_heads or min(self.pseudo_heads) < 1:
            raise ValueError(f"pseudo-heads must be at least 1, got {self.pseudo_heads}")
        for P in self.pseudo_heads:
            flop_matched_window(self.tokens, P)  # raises here, not after minutes of measuring

    def sizes(self) -> "Sizes":
        return Sizes(self.tokens, self.heads, self.head_dim, DTYPES[self.dtype], self.repeats)


def run(settings: Settings, command: str, progress: Progress = silent) -> Record:
    """Measure everything that the settings ask for, and say whether the machine was quiet enough for it."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    kept = settings.keep_memory and keep_memory()
    watch = Watch()
    record = Record.new("attention-bench", command=command, config=asdict(settings), seed=settings.seed)
    results: dict[str, Any] = {"comparisons": [], "memory": [], "growth": [], "mechanisms": [], "decoding": []}
    todo = list(_measurements(settings))
    with progress.task("bench attention", total=len(todo)) as task:
        for name, part, measure in todo:
            task.advance(0, note=name)
            results[part] += [asdict(row) for row in measure()]
            task.advance(1)
    ratios = [*results["comparisons"], *results["mechanisms"], *results["decoding"]]
    quiet = watch.judge(row["spread"] for row in ratios)
    kernel = kernel_used(settings.head_dim, DTYPES[settings.dtype])
    return record.finished({**results, "kernel": kernel, "memory_kept": kept, "quiet": quiet.as_json()})


def _measurements(settings: Settings) -> Iterator[tuple[str, str, Callable[[], list[Any]]]]:
    """The measurements in order: (progress message, key of its rows in the results, function)."""
    sizes = settings.sizes()
    few = replace(sizes, repeats=max(1, sizes.repeats // 3))  # a dense mask takes many seconds per round
    for P in settings.pseudo_heads:
        yield f"local against SDPA, P = {P}", "comparisons", partial(compare_local, sizes, P)
        if min(settings.pseudo_heads) == P:  # what a global layer adds to SDPA is the same for every P
            yield f"global against SDPA, P = {P}", "comparisons", partial(compare_global, sizes, P)
        yield f"local against a dense mask, P = {P}", "comparisons", partial(compare_dense_mask, few, P)
        yield f"memory, P = {P}", "memory", partial(memory, sizes, P)
        if not settings.quick:
            yield f"time against N, P = {P}", "growth", partial(
                growth, sizes, P, settings.growth_window, settings.lengths, settings.longest_sdpa
            )  # fmt: skip
    shape = AttentionShape(settings.heads * settings.head_dim, settings.heads)
    yield "decoding", "decoding", lambda: list(
        decoding_costs(shape, settings.tokens, settings.pseudo_heads, settings.decoding_window, settings.repeats)
    )  # fmt: skip
    if not settings.quick:
        P = settings.pseudo_heads[0]
        yield "every mechanism", "mechanisms", lambda: list(
            layer_costs(shape, settings.mechanism_tokens, P, settings.repeats)
        )  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    num_tokens: int = 4096  # N
    num_heads: int = 8  # H
    head_dim: int = 64  # D
    dtype: torch.dtype = torch.float32
    repeats: int = 7
    device: str = "cpu"

    def heads(self, tokens: int) -> list[Tensor]:
        return [self._random(1, tokens, self.num_heads, self.head_dim).requires_grad_() for _ in range(3)]

    def mixing(self, P: int) -> list[Tensor]:
        """Three alphas and R, drawn so that pseudo-heads have the variance of heads."""
        H = self.num_heads
        alphas = [self._random(H, H, P) * H**-0.5 for _ in range(3)]
        return [t.requires_grad_() for t in (*alphas, self._random(H, P) * P**-0.5)]

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class Comparison:
    """One side against the other, in seconds."""

    what: str
    against: str
    num_tokens: int
    num_pseudo_heads: int
    window: int | None
    direction: str  # "forward" | "forward + backward"
    seconds: float
    seconds_against: float
    ratio: float
    ratios: list[float]  # of the separate runs
    spread: float | None  # of those


Side = tuple[Callable[[], Tensor], Sequence[Tensor]]  # a function, and what its gradients are taken of


def compare_local(sizes: Sizes, P: int, backend: str = "auto") -> list[Comparison]:
    """FLOP-matched local IHA, mixing and collapse included, against causal SDPA on the N tokens."""
    W = flop_matched_window(sizes.num_tokens, P)
    sides = (_iha(sizes, P, sizes.num_tokens, W, backend), _sdpa(sizes, sizes.num_tokens))
    return _compare("local IHA, W = N/(2P²)", "SDPA, causal, N tokens", sizes, P, W, *sides)


def compare_global(sizes: Sizes, P: int) -> list[Comparison]:
    """Global IHA against causal SDPA on N*P tokens: the difference is the cost of mixing and collapse."""
    sides = (_iha(sizes, P, sizes.num_tokens, None), _sdpa(sizes, sizes.num_tokens * P))
    return _compare("global IHA", "SDPA, causal, N·P tokens", sizes, P, None, *sides)


def compare_dense_mask(sizes: Sizes, P: int) -> list[Comparison]:
    """Local IHA against SDPA on the virtual tokens with the same window as a dense mask."""
    N, W = sizes.num_tokens, flop_matched_window(sizes.num_tokens, P)
    index = torch.arange(N * P)
    mask = Visibility("virtual", W, P)(index[:, None], index[None, :])  # (N*P, N*P) bool
    sides = (_iha(sizes, P, N, W), _sdpa(sizes, N * P, mask))
    return _compare("local IHA, W = N/(2P²)", "SDPA with the window as a dense mask", sizes, P, W, *sides)


@dataclass(frozen=True)
class Growth:
    """Time at a length, at a fixed window, beside causal SDPA (None where it was left out as too slow)."""

    num_tokens: int
    num_pseudo_heads: int
    window: int
    direction: str
    seconds: float
    seconds_sdpa: float | None


def growth(sizes: Sizes, P: int, window: int, lengths: Sequence[int], longest_sdpa: int) -> list[Growth]:
    """Local IHA at growing N: linear, where SDPA is quadratic."""
    points = []
    for N in lengths:
        sides = {"iha": _iha(sizes, P, N, window)} | ({"sdpa": _sdpa(sizes, N)} if longest_sdpa >= N else {})
        for direction, run in (("forward", _forward), ("forward + backward", _forward_backward)):
            times = take_turns({name: run(*side) for name, side in sides.items()}, max(2, sizes.repeats // 2))
            sdpa = times.best("sdpa") if "sdpa" in sides else None
            points.append(Growth(N, P, window, direction, times.best("iha"), sdpa))
    return points


@dataclass(frozen=True)
class MemoryUse:
    num_pseudo_heads: int
    window: int
    direction: str
    peak_bytes: int
    largest_bytes: int
    mixed_bytes: int  # of q, k and v after mixing: what the plain recipe builds first
    peak_over_mixed: float


def memory(sizes: Sizes, P: int) -> list[MemoryUse]:
    """What local IHA allocates on top of its inputs."""
    W = flop_matched_window(sizes.num_tokens, P)
    side = _iha(sizes, P, sizes.num_tokens, W)
    mixed = 3 * sizes.num_tokens * P * sizes.num_heads * sizes.head_dim * sizes.dtype.itemsize
    uses = []
    for direction, run in (("forward", _forward(*side)), ("forward + backward", _forward_backward(*side))):
        run()
        use: Memory = allocated(run)
        uses.append(MemoryUse(P, W, direction, use.peak, use.largest, mixed, use.peak / mixed))
    return uses


def _iha(sizes: Sizes, P: int, tokens: int, window: int | None, backend: str = "auto") -> Side:
    inputs = [*sizes.heads(tokens), *sizes.mixing(P)]
    return lambda: interleaved_head_attention(*inputs, window=window, backend=backend), inputs


def _sdpa(sizes: Sizes, tokens: int, mask: Tensor | None = None) -> Side:
    inputs = sizes.heads(tokens)

    def run() -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in inputs)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None).transpose(1, 2)

    return run, inputs


def _compare(what: str, against: str, sizes: Sizes, P: int, window: int | None, a: Side, b: Side) -> list[Comparison]:
    results = []
    for direction, run in (("forward", _forward), ("forward + backward", _forward_backward)):
        times = take_turns({"a": run(*a), "b": run(*b)}, sizes.repeats)
        results.append(
            Comparison(
                what, against, sizes.num_tokens, P, window, direction, times.best("a"), times.best("b"),
                times.ratio("a", "b"), times.ratios("a", "b"), times.spread("a", "b"),
            )
        )  # fmt: skip
    return results


def _forward(function: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Callable[[], object]:
    def run() -> Tensor:
        with torch.no_grad():
            return function()

    return run


def _forward_backward(function: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Callable[[], object]:
    with torch.no_grad():
        grad = torch.randn_like(function())
    return lambda: torch.autograd.grad(function(), inputs, grad)
