"""Time per token of a layer that decodes with a cache, beside plain multi-head attention with as long a cache."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from iha.accounting.mechanisms import AttentionShape
from iha.bench.measure import take_turns
from iha.layers.cache import KVCache
from iha.layers.schedule import LayerSpec

TOKENS = 16  # decoded per round


@dataclass(frozen=True)
class DecodingCost:
    num_pseudo_heads: int
    window: int | None  # None is global
    num_cached: int  # tokens before the first decoded one
    seconds_per_token: float
    seconds_per_token_multihead: float
    ratio: float
    ratios: list[float]  # of the separate runs
    spread: float | None  # of those


def decoding_costs(
    shape: AttentionShape, num_cached: int, pseudo_heads: tuple[int, ...], window: int, rounds: int,
    device: str = "cpu", dtype: torch.dtype = torch.float32,
) -> Iterator[DecodingCost]:  # fmt: skip
    """IHA layers, global and windowed, each timed alternately with a global multi-head layer."""
    for P in pseudo_heads:
        for W in (None, window):
            sides = {
                "iha": decoder(shape, LayerSpec("iha", W, P), num_cached, device, dtype),
                "multihead": decoder(shape, LayerSpec(), num_cached, device, dtype),
            }
            times = take_turns(sides, rounds)
            pair = ("iha", "multihead")
            mine, theirs = (times.best(side) / TOKENS for side in pair)
            yield DecodingCost(
                P, W, num_cached, mine, theirs, times.ratio(*pair), times.ratios(*pair), times.spread(*pair)
            )


def decoder(
    shape: AttentionShape, spec: LayerSpec, num_cached: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Callable[[], None]:
    """A function that decodes a few more tokens after a prefill of `num_cached` tokens."""
    layer = spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, causal=shape.causal,
        rope_theta=10_000.0, device=device, dtype=dtype,
    ).eval()  # fmt: skip
    cache = KVCache()
    with torch.no_grad():
        layer(torch.randn(1, num_cached, shape.embed_dim, device=device, dtype=dtype), cache=cache)
    token = torch.randn(1, 1, shape.embed_dim, device=device, dtype=dtype)

    def decode() -> None:
        with torch.no_grad():
            for _ in range(TOKENS):
                layer(token, cache=cache)

    return decode
