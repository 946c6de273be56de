"""Adapter from `transformers` caches to the interface of `iha.KVCache`. Dynamic caches are extended in place."""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from iha.layers.cache import Cached
from iha.layers.growth import Room, extended, kept

# Spare memory behind the keys and values of a dynamic layer. It is not kept in the layer: copies, exports and pickles
# of a cache hold its tokens and nothing of ours.
_ROOMS: WeakKeyDictionary[CacheLayerMixin, tuple[Room | None, Room | None]] = WeakKeyDictionary()


def append(cache: Cache, layer_idx: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """`cache.update`, but dynamic layers are extended in place (`iha.layers.growth`). The results are the same."""
    layer = cache.layers[layer_idx] if layer_idx < len(cache.layers) else None
    is_dynamic = type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) and not cache.offloading
    if not is_dynamic or torch.compiler.is_compiling():
        return cache.update(k, v, layer_idx)
    assert isinstance(layer, DynamicLayer)
    if not layer.is_initialized:
        layer.lazy_initialization(k, v)
    keys, values = _extended(layer, k, v)
    if isinstance(layer, DynamicSlidingWindowLayer):
        return _within_window(layer, keys, values, k.shape[2])
    layer.keys, layer.values = keys, values
    return keys, values


def _extended(layer: DynamicLayer, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    assert layer.keys is not None
    assert layer.values is not None
    if not layer.keys.numel():
        return k, v
    room_k, room_v = _ROOMS.get(layer, (None, None))
    (keys, room_k), (values, room_v) = extended(layer.keys, k, room_k), extended(layer.values, v, room_v)
    _ROOMS[layer] = room_k, room_v
    return keys, values


def _within_window(
    layer: DynamicSlidingWindowLayer, keys: Tensor, values: Tensor, num_new: int
) -> tuple[Tensor, Tensor]:
    """Store what later tokens can see, and return what the new ones can."""
    layer.cumulative_length += num_new
    if layer.record_past:  # `crop` may need older tokens, and drops the excess itself
        layer.keys, layer.values = keys, values
        visible = layer.sliding_window - 1 + num_new
        return keys[:, :, -visible:], values[:, :, -visible:]
    count = min(layer.sliding_window - 1, keys.shape[2])
    rooms = _ROOMS.get(layer, (None, None))
    layer.keys, layer.values = (kept(t, count, room) for t, room in zip((keys, values), rooms, strict=True))
    return keys, values


def check_batch(cache: Cache | None, B: int) -> None:
    """Raise if a batch of B cannot follow what the cache holds. A static cache might take it and be overwritten."""
    if cache is None or torch.compiler.is_compiling():  # compiled code would be specialised to the batch
        return
    for layer in getattr(cache, "self_attention_cache", cache).layers:
        keys = getattr(layer, "keys", None)
        if keys is not None and keys.numel() and keys.shape[0] != B:
            raise ValueError(f"the cache holds a batch of {keys.shape[0]}, the new tokens are a batch of {B}")


class CacheOfLayer:
    """One layer's part of any `transformers` cache, as a `LayerCache` for the layers of `iha.layers`.

    `transformers` stores tokens as soon as they are appended, so all input checks must come before.
    """

    def __init__(self, cache: Cache, layer_idx: int, padding: Tensor | None) -> None:
        self.cache, self.layer_idx = cache, layer_idx
        self.padding = padding  # (B, tokens so far plus unfilled slots of a static cache) bool, True = a real token

    @property
    def num_tokens_seen(self) -> int | Tensor:
        return self.cache.get_seq_length(self.layer_idx)

    def extended(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, document_ids: Tensor | None) -> Cached:
        """Append k and v (B, G, Nq, D) to the cache and return what they may attend to."""
        Nq = k.shape[2]
        first = self.cache.get_mask_sizes(Nq, self.layer_idx)[1]  # token index of the first key that `append` returns
        newest = self.num_tokens_seen + (Nq - 1)
        k, v = append(self.cache, self.layer_idx, k, v)
        padding = None if self.padding is None else self.padding[:, first : first + k.shape[2]]
        return Cached(k, v, padding, None, first, newest)

    def keep(self, cached: Cached, reach_back: int | None) -> None:
        """Nothing to do: `append` has already stored the tokens."""


def cache_bytes(cache: Cache) -> int:
    """Size of the cached keys and values."""
    layers = [layer for layer in cache.layers if isinstance(layer, CacheLayerMixin)]
    tensors = [t for layer in layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in tensors)
