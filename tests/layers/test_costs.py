"""What layers say they cost; the formulas of the paper's shapes are checked in tests/accounting."""

import pytest
import torch

from iha.layers import InterleavedHeadAttention, KnockingHeadsAttention, MultiHeadAttention, SimplicialAttention
from iha.layers.cache import KVCache


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"bias": True, "out_bias": False}, {"qk_norm_eps": 1e-6}])
def test_parameters_are_those_allocated(options: dict) -> None:
    for layer in (
        MultiHeadAttention(24, 4, num_kv_heads=2, head_dim=10, **options),
        InterleavedHeadAttention(24, 4, 3, num_kv_heads=2, head_dim=10, **options),
        SimplicialAttention(24, 4, num_kv_heads=2, head_dim=10, **options),
    ):
        assert layer.num_parameters().total == sum(p.numel() for p in layer.parameters())


def test_two_windows_count_the_pairs_that_both_let_through() -> None:
    N, unit = 13, 4 * 4 * 4
    layer = SimplicialAttention(16, 4, window=(3, 5))
    seen = sum(min(i + 1, 3) * min(i + 1, 5) for i in range(N))
    assert layer.flops(N).attention == unit * seen
    with pytest.raises(ValueError, match=r"\(3, 5\)"):
        layer.flops(N, "paper")
    assert SimplicialAttention(16, 4, window=(4, 4)).flops(N) == SimplicialAttention(16, 4, window=4).flops(N)


def test_linear_knocking_acts_on_queries_keys_and_values() -> None:
    D, H, G, N = 4, 4, 2, 7
    linear, mlp = (KnockingHeadsAttention(16, H, num_kv_heads=G, kind=kind) for kind in ("linear", "mlp"))
    assert linear.flops(N).mixing == 2 * D * D * (H + 2 * G) * N
    assert mlp.flops(N).mixing == 2 * D * D * 3 * G * N


@pytest.mark.parametrize("window", [None, 1, 4])
def test_cache_bytes_are_those_of_the_cache(window: int | None) -> None:
    layer, cache = InterleavedHeadAttention(16, 4, 3, num_kv_heads=2, window=window), KVCache()
    layer(torch.randn(1, 9, 16), cache=cache)
    assert layer.cache_bytes(9, element_size=4) == cache.num_bytes
    assert InterleavedHeadAttention(16, 4, 3, causal=None).cache_bytes(9) is None
