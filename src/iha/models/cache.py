"""Adapter from `transformers` caches to the interface of `iha.KVCache`, and cache layers that append in place."""

from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from iha.layers.cache import Cached
from iha.layers.growth import Room, extended, kept


class CacheOfLayer:
    """One layer's part of any `transformers` cache, as a `LayerCache` for the layers of `iha.layers`.

    `transformers` stores tokens as soon as `update` is called, so all input checks must come before.
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
        first = self.cache.get_mask_sizes(Nq, self.layer_idx)[1]  # token index of the first key that `update` returns
        newest = self.num_tokens_seen + (Nq - 1)
        k, v = self.cache.update(k, v, self.layer_idx)
        padding = None if self.padding is None else self.padding[:, first : first + k.shape[2]]
        return Cached(k, v, padding, None, first, newest)

    def keep(self, cached: Cached, reach_back: int | None) -> None:
        """Nothing to do: `update` has already stored the tokens."""


class GrowingLayer(DynamicLayer):
    """A `DynamicLayer` that appends in place (`iha.layers.growth`)."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._rooms: tuple[Room | None, Room | None] = (None, None)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        self.keys, self.values = self._joined(key_states, value_states)
        return self.keys, self.values

    def _joined(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        if not self.keys.numel():
            return key_states, value_states
        keys, room = extended(self.keys, key_states, self._rooms[0])
        values, room_v = extended(self.values, value_states, self._rooms[1])
        self._rooms = room, room_v
        return keys, values


class GrowingWindowLayer(GrowingLayer, DynamicSlidingWindowLayer):
    """A `DynamicSlidingWindowLayer` that appends in place (`iha.layers.growth`)."""

    def __init__(self, sliding_window: int) -> None:
        DynamicSlidingWindowLayer.__init__(self, sliding_window)
        self._rooms = (None, None)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        keys, values = self._joined(key_states, value_states)
        self.cumulative_length += key_states.shape[2]
        if self.record_past:  # `crop` may need older tokens, and drops the excess itself
            self.keys, self.values = keys, values
            visible = self.sliding_window - 1 + key_states.shape[2]
            return keys[:, :, -visible:], values[:, :, -visible:]
        count = min(self.sliding_window - 1, keys.shape[2])
        self.keys, self.values = (kept(t, count, r) for t, r in zip((keys, values), self._rooms, strict=True))
        return keys, values


def with_room_to_grow(cache: DynamicCache) -> DynamicCache:
    """The same cache, which must be empty, with layers that append in place."""
    cache.layers = [_growing(layer) for layer in cache.layers]  # type: ignore[arg-type]
    return cache


def _growing(layer: CacheLayerMixin) -> CacheLayerMixin:
    if type(layer) is DynamicLayer:
        return GrowingLayer()
    if type(layer) is DynamicSlidingWindowLayer:
        growing = GrowingWindowLayer(layer.sliding_window)
        growing.record_past = layer.record_past
        return growing
    return layer


def cache_bytes(cache: Cache) -> int:
    """Size of the cached keys and values."""
    layers = [layer for layer in cache.layers if isinstance(layer, CacheLayerMixin)]
    tensors = [t for layer in layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in tensors)
