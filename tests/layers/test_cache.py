"""The layer's cache: a refused forward leaves it alone, copies go on apart, and it has the ordinary shape."""

import copy
from collections.abc import Callable

import pytest
import torch

import iha
from iha.layers import MultiHeadAttention, TalkingHeadsAttention
from iha.layers.base import SelfAttention

X = torch.randn(2, 9, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LAYERS: dict[str, Callable[..., SelfAttention]] = {
    "iha": lambda **o: iha.InterleavedHeadAttention(16, 4, 3, num_kv_heads=2, dtype=torch.float64, **o),
    "multihead": lambda **o: MultiHeadAttention(16, 4, num_kv_heads=2, dtype=torch.float64, **o),
    "talking_heads": lambda **o: TalkingHeadsAttention(16, 4, num_kv_heads=2, dtype=torch.float64, **o),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("window", [None, 1, 4])
@torch.no_grad()
def test_a_refused_forward_leaves_the_cache_as_it_was(name: str, window: int | None) -> None:
    layer, cache = LAYERS[name](window=window, rope_theta=100.0), iha.KVCache()
    outputs = [layer(X[:, :4], cache=cache)]
    seen, kept = cache.num_tokens_seen, cache.num_tokens_kept
    refused: list[dict] = [
        {"x": X[:1, 4:5]},
        {"x": X[:, 4:5, :15]},
        {"x": X[:, 4:5], "document_ids": torch.zeros(2, 1, dtype=torch.long)},
        {"x": X[:, 4:5], "key_padding_mask": torch.ones(2, 2, dtype=torch.bool)},
        {"x": X[:, 4:5], "key_padding_mask": torch.ones(2, 1)},
        {"x": X[:, 4:5].float()},
    ]
    for arguments in refused:
        with pytest.raises((ValueError, RuntimeError)):
            layer(arguments.pop("x"), cache=cache, **arguments)
        assert (cache.num_tokens_seen, cache.num_tokens_kept) == (seen, kept)
    if name != "talking_heads" and window is not None:
        layer.backend = "sdpa"  # cannot do windows: refused in the midst of attention
        with pytest.raises(ValueError, match="sdpa"):
            layer(X[:, 4:9], cache=cache)
        layer.backend = "auto"
    outputs += [layer(X[:, 4:6], cache=cache), layer(X[:, 6:7], cache=cache), layer(X[:, 7:], cache=cache)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), layer(X), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@torch.no_grad()
def test_copies_go_on_apart(name: str, copied: Callable) -> None:
    layer, cache = LAYERS[name](rope_theta=100.0), iha.KVCache()
    for t in range(3):
        layer(X[:, t : t + 1], cache=cache)
    twin = copied(cache)
    for t in range(3, 6):  # in turns
        one = layer(X[:, t : t + 1], cache=cache)
        other = layer(X[:, t + 3 : t + 4], cache=twin)
    torch.testing.assert_close(one, layer(X[:, :6])[:, -1:], atol=1e-12, rtol=0)
    apart = torch.cat((X[:, :3], X[:, 6:9]), dim=1)
    torch.testing.assert_close(other, layer(apart)[:, -1:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_through_decoding_are_those_of_the_whole(name: str) -> None:
    layer, cache = LAYERS[name](rope_theta=100.0), iha.KVCache()
    x = X.clone().requires_grad_()
    steps = torch.cat([layer(part, cache=cache) for part in x.split([4, 1, 1, 3], dim=1)], dim=1)
    wanted = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    found = torch.autograd.grad(steps.square().sum(), [x, *layer.parameters()])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


@torch.no_grad()
def test_prefill_in_inference_mode_then_going_on() -> None:
    layer, cache = LAYERS["iha"](rope_theta=100.0), iha.KVCache()
    with torch.inference_mode():
        layer(X[:, :3], cache=cache), layer(X[:, 3:4], cache=cache)
    steps = [layer(X[:, t : t + 1], cache=cache) for t in range(4, 9)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(X)[:, 4:], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "options", [{"rope_theta": float("nan")}, {"rope_theta": 0.0}, {"window": 2.5}, {"window": True}]
)
@pytest.mark.parametrize("name", LAYERS)
def test_what_forward_could_not_use_is_refused_at_construction(name: str, options: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be .* got {next(iter(options.values()))}"):
        LAYERS[name](**options)
