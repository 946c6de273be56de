"""Time and memory of every mechanism's layer beside multi-head attention, at equal length and at equal FLOPs."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch

from iha.accounting.matching import matched_window
from iha.accounting.measure import allocated, best_seconds
from iha.accounting.mechanisms import AttentionShape
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec

PARTS = ("attention", "mixing")  # the projections are everybody's


@dataclass(frozen=True)
class LayerCost:
    mechanism: str
    num_pseudo_heads: int
    window: int | None  # None is global
    comparison: str  # "equal N" | "equal FLOPs"
    direction: str  # "forward" | "forward + backward"
    seconds: float
    ratio: float  # to global multi-head attention's time
    peak_bytes: int

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def layer_costs(
    shape: AttentionShape, num_tokens: int, num_pseudo_heads: int, repeats: int, progress: Callable[[str], None]
) -> Iterator[LayerCost]:
    """Every mechanism in turn, each timed in turns with global multi-head attention on the same input."""
    x = torch.randn(1, num_tokens, shape.embed_dim)
    baseline = _steps(_layer(shape, LayerSpec()), x)
    for comparison, spec in _specs(shape, num_tokens, num_pseudo_heads):
        progress(f"{spec.mechanism}, {comparison}")
        steps = _steps(_layer(shape, spec), x)
        for direction, run in steps.items():
            best = best_seconds({"this": run, "multihead": baseline[direction]}, repeats)
            peak = allocated(run).peak
            ratio = best["this"] / best["multihead"]
            P, W = spec.num_pseudo_heads, spec.window
            yield LayerCost(spec.mechanism, P, W, comparison, direction, best["this"], ratio, peak)


def _specs(shape: AttentionShape, N: int, P: int) -> Iterator[tuple[str, LayerSpec]]:
    for name, mechanism in MECHANISMS.items():
        pseudo_heads = P if mechanism.has_pseudo_heads else 1
        yield "equal N", LayerSpec(name, None, pseudo_heads)
        if name == LayerSpec().mechanism:
            continue

        def with_window(window: int, name: str = name, pseudo_heads: int = pseudo_heads) -> tuple[LayerSpec]:
            return (LayerSpec(name, window, pseudo_heads),)

        window = matched_window(shape, N, with_window, parts=PARTS).window
        if window < N:  # else it costs no more than multi-head attention as it is
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
