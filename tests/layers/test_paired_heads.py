"""Paired heads as a layer: its definition, its cost, and interleaved heads that start as it."""

from typing import Any

import pytest
import torch
from torch import Tensor

import iha
from iha.layers.cache import KVCache
from iha.layers.call import Call
from iha.layers.multihead import MultiHeadAttention
from iha.layers.paired_heads import PairedHeadsAttention
from iha.ops import reference
from iha.ops.masking import Masking
from layers.catalogue import CASES, E, G, H, assert_is_its_definition, build
from ops.test_paired_heads import one_hot


def definition(layer: PairedHeadsAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return reference.interleaved_head_attention(q, k, v, *one_hot(H, G), **options)


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("paired_heads", definition, causal, window, masked)


@pytest.mark.parametrize("window", [None, 4])
def test_interleaved_heads_start_as_paired_heads(window: int | None) -> None:
    """In the full forward and in decoding, with RoPE."""
    options: dict[str, Any] = {"num_kv_heads": G, "window": window, "rope_theta": 100.0, "dtype": torch.float64}
    paired = PairedHeadsAttention(E, H, **options)
    mixed = iha.InterleavedHeadAttention(
        E, H, 2, num_mixed_heads=H // 2, collapse="full", init="paired_heads", **options
    )
    assert not mixed.load_state_dict(paired.state_dict(), strict=False).unexpected_keys
    x = torch.randn(2, 9, E, dtype=torch.float64)
    torch.testing.assert_close(mixed(x), paired(x), atol=1e-12, rtol=0)
    caches = KVCache(), KVCache()
    for part in x.split([4, 1, 1, 3], dim=1):
        one, other = (layer(part, cache=cache) for layer, cache in zip((mixed, paired), caches, strict=True))
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_it_costs_twice_multi_head_attention_and_no_parameter() -> None:
    N = 64
    paired, plain = PairedHeadsAttention(E, H, causal=None), MultiHeadAttention(E, H, causal=None)
    assert paired.num_parameters() == plain.num_parameters()
    assert paired.flops(N).attention == 2 * plain.flops(N).attention
    assert paired.flops(N).mixing == 0
    interleaved = iha.InterleavedHeadAttention(E, H, 2, causal=None)
    fewer = iha.InterleavedHeadAttention(
        E, H, 2, num_mixed_heads=H // 2, collapse="full", init="paired_heads", causal=None
    )
    assert interleaved.flops(N).attention == 4 * plain.flops(N).attention
    assert fewer.flops(N).attention == paired.flops(N).attention
    assert build("paired_heads").cache_bytes(N) == build("multihead").cache_bytes(N)


def test_weights_are_between_rows_of_pairs() -> None:
    layer = build("paired_heads", rope_theta=None)
    x = torch.randn(2, 5, E, dtype=torch.float64)
    out, weights = layer.attend_with_weights(*layer.project(x), Masking(layer.visibility), Call(None, "auto", None))
    assert weights.shape == (2, H // 2, 10, 10)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, H // 2, 10, dtype=torch.float64))
    torch.testing.assert_close(layer.o_proj(out.flatten(2)), layer(x), atol=1e-12, rtol=0)


def test_odd_heads_are_named() -> None:
    with pytest.raises(ValueError, match="num_heads=3"):
        PairedHeadsAttention(12, 3)
