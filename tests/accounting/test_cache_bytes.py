"""Cache sizes by formula against the cache itself."""

import pytest
import torch

from iha.accounting import AttentionShape, layer_cache_bytes, schedule_cache_bytes
from iha.layers.cache import KVCache
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec, named_schedule
from iha.ops.pairs import kept

SPECS = [LayerSpec(name) for name in MECHANISMS if name not in ("iha", "multi_token")]
SPECS += [LayerSpec("iha", None, P) for P in (1, 2, 5)]


@pytest.mark.parametrize("causal", ["virtual", "token"])
@pytest.mark.parametrize("window", [None, 1, 3, 5, 9])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_cache_bytes_are_those_of_the_cache(causal: str, window: int | None, spec: LayerSpec) -> None:
    shape = AttentionShape(16, 4, 2, 4, causal=causal)
    spec = LayerSpec(spec.mechanism, window, spec.num_pseudo_heads)
    layer = spec.build(16, 4, num_kv_heads=2, head_dim=4, causal=causal, dtype=torch.bfloat16)
    cache = KVCache()
    for n in range(1, 8):
        layer(torch.randn(1, 1, 16, dtype=torch.bfloat16), cache=cache)
        assert layer_cache_bytes(shape, spec, n) == cache.num_bytes, n


def test_what_a_window_keeps() -> None:
    """Virtual causality slides by pseudo-heads, so it still looks into token n - W; token causality does not."""
    spec = LayerSpec("iha", 64, 4)
    assert kept(spec.visibility("virtual"), 1000) == (64, 4 * 64 - 1)
    assert kept(spec.visibility("token"), 1000) == (63, 4 * 63)
    assert kept(LayerSpec(window=64).visibility("virtual"), 1000) == (63, 63)
    assert kept(LayerSpec("iha", None, 4).visibility("virtual"), 1000) == (1000, 4000)
    shape, globally = AttentionShape(32, 4), LayerSpec("iha", None, 4)
    assert layer_cache_bytes(shape, globally, 1000, pseudo_heads=True) == 4 * layer_cache_bytes(shape, globally, 1000)


def test_no_cache_is_none() -> None:
    assert layer_cache_bytes(AttentionShape(32, 4), LayerSpec("multi_token"), 10) is None
    assert layer_cache_bytes(AttentionShape(32, 4, causal=None), LayerSpec(), 10) is None
    assert schedule_cache_bytes(AttentionShape(32, 4), named_schedule("multi_token", 3), 10) is None
