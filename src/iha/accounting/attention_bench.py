"""Speed and memory of interleaved head attention beside SDPA: what `iha bench attention` measures."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.accounting.measure import Memory, allocated, best_seconds
from iha.layers.schedule import flop_matched_window
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.visibility import Visibility


@dataclass(frozen=True)
class Sizes:
    num_tokens: int = 4096  # N
    num_heads: int = 8  # H
    head_dim: int = 64  # D
    dtype: torch.dtype = torch.float32
    repeats: int = 7

    def heads(self, tokens: int) -> list[Tensor]:
        shape = (1, tokens, self.num_heads, self.head_dim)
        return [torch.randn(shape, dtype=self.dtype, requires_grad=True) for _ in range(3)]

    def mixing(self, P: int) -> list[Tensor]:
        """Three alphas and R, drawn so that pseudo-heads have the variance of heads."""
        H = self.num_heads
        alphas = [torch.randn(H, H, P, dtype=self.dtype) * H**-0.5 for _ in range(3)]
        return [t.requires_grad_() for t in (*alphas, torch.randn(H, P, dtype=self.dtype) * P**-0.5)]


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

    @property
    def ratio(self) -> float:
        return self.seconds / self.seconds_against

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio}


Side = tuple[Callable[[], Tensor], Sequence[Tensor]]  # a function, and what its gradients are taken of


def compare_local(sizes: Sizes, P: int) -> list[Comparison]:
    """FLOP-matched local IHA, mixing and collapse included, against causal SDPA on the N tokens."""
    W = flop_matched_window(sizes.num_tokens, P)
    sides = (_iha(sizes, P, sizes.num_tokens, W), _sdpa(sizes, sizes.num_tokens))
    return _compare("local IHA, W = N/(2P²)", "SDPA, causal, N tokens", sizes, P, W, *sides)


def compare_global(sizes: Sizes, P: int) -> list[Comparison]:
    """Global IHA against causal SDPA on a sequence as long as its virtual one: what mixing and collapse add."""
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
            best = best_seconds({name: run(*side) for name, side in sides.items()}, max(2, sizes.repeats // 2))
            points.append(Growth(N, P, window, direction, best["iha"], best.get("sdpa")))
    return points


@dataclass(frozen=True)
class MemoryUse:
    num_pseudo_heads: int
    window: int
    direction: str
    peak_bytes: int
    largest_bytes: int
    mixed_bytes: int  # of q, k and v after mixing: what the plain recipe builds first

    @property
    def peak_over_mixed(self) -> float:
        return self.peak_bytes / self.mixed_bytes

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "peak_over_mixed": self.peak_over_mixed}


def memory(sizes: Sizes, P: int) -> list[MemoryUse]:
    """What local IHA allocates on top of its inputs."""
    W = flop_matched_window(sizes.num_tokens, P)
    side = _iha(sizes, P, sizes.num_tokens, W)
    mixed = 3 * sizes.num_tokens * P * sizes.num_heads * sizes.head_dim * sizes.dtype.itemsize
    uses = []
    for direction, run in (("forward", _forward(*side)), ("forward + backward", _forward_backward(*side))):
        run()
        use: Memory = allocated(run)
        uses.append(MemoryUse(P, W, direction, use.peak, use.largest, mixed))
    return uses


def _iha(sizes: Sizes, P: int, tokens: int, window: int | None) -> Side:
    inputs = [*sizes.heads(tokens), *sizes.mixing(P)]
    return lambda: interleaved_head_attention(*inputs, window=window), inputs


def _sdpa(sizes: Sizes, tokens: int, mask: Tensor | None = None) -> Side:
    inputs = sizes.heads(tokens)

    def run() -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in inputs)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None).transpose(1, 2)

    return run, inputs


def _compare(what: str, against: str, sizes: Sizes, P: int, window: int | None, a: Side, b: Side) -> list[Comparison]:
    results = []
    for direction, run in (("forward", _forward), ("forward + backward", _forward_backward)):
        best = best_seconds({"a": run(*a), "b": run(*b)}, sizes.repeats)
        results.append(Comparison(what, against, sizes.num_tokens, P, window, direction, best["a"], best["b"]))
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
