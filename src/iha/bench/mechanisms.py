"""Time and memory of every mechanism's layer beside multi-head attention, at equal length and at equal FLOPs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from iha.accounting.matching import matched_window
from iha.accounting.mechanisms import AttentionShape
from iha.bench.measure import allocated, take_turns
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec

PARTS = ("attention", "mixing")  # the projections are the same for every mechanism


@dataclass(frozen=True)
class LayerCost:
    mechanism: str
    num_pseudo_heads: int
    window: int | None  # None is global
    comparison: str  # "equal N" | "equal FLOPs"
    direction: str  # "forward" | "forward + backward"
    seconds: float
    ratio: float  # to global multi-head attention's time
    ratios: list[float]  # of the separate runs
    spread: float | None  # of those
    peak_bytes: int
    num_tokens: int


def layer_costs(shape: AttentionShape, num_tokens: int, num_pseudo_heads: int, repeats: int) -> Iterator[LayerCost]:
    """Every mechanism, each timed alternately with global multi-head attention on the same input."""
    x = torch.randn(1, num_tokens, shape.embed_dim)
    baseline = _steps(_layer(shape, LayerSpec()), x)
    for comparison, spec in _specs(shape, num_tokens, num_pseudo_heads):
        steps = _steps(_layer(shape, spec), x)
        for direction, run in steps.items():
            times = take_turns({"this": run, "multihead": baseline[direction]}, repeats)
            pair = ("this", "multihead")
            yield LayerCost(
                spec.mechanism, spec.num_pseudo_heads, spec.window, comparison, direction, times.best("this"),
                times.ratio(*pair), times.ratios(*pair), times.spread(*pair), allocated(run).peak, num_tokens,
            )  # fmt: skip


def _specs(shape: AttentionShape, N: int, P: int) -> Iterator[tuple[str, LayerSpec]]:
    for name, mechanism in MECHANISMS.items():
        pseudo_heads = P if mechanism.has_pseudo_heads else 1
        yield "equal N", LayerSpec(name, None, pseudo_heads)
        if name == LayerSpec().mechanism:
            continue

        def with_window(window: int, name: str = name, pseudo_heads: int = pseudo_heads) -> tuple[LayerSpec]:
            return (LayerSpec(name, window, pseudo_heads),)

        window = matched_window(shape, N, with_window, parts=PARTS).window
        if window < N:  # otherwise it already costs no more than multi-head attention
            yield "equal FLOPs", with_window(window)[0]


def _layer(shape: AttentionShape, spec: LayerSpec) -> torch.nn.Module:
    return spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, causal=shape.causal
    )


def _steps(layer: torch.nn.Module, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    grad = torch.randn_like(x)

    def forward() -> object:
        with torch.no_grad():
            return layer(x)

    def forward_backward() -> object:
        return torch.autograd.grad(layer(x), list(layer.parameters()), grad)

    return {"forward": forward, "forward + backward": forward_backward}
