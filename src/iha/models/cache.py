"""Cache layers that grow in place: appending a token to N does not copy N tokens, as `torch.cat` would."""

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

_SLACK = 128  # tokens of room that a full buffer grows by


class GrowingLayer(DynamicLayer):
    """A `DynamicLayer` whose keys and values are the filled beginning of larger buffers."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._key_buffer: Tensor | None = None
        self._value_buffer: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        assert self.keys is not None
        assert self.values is not None
        self._key_buffer, self.keys = _appended(self._key_buffer, self.keys, key_states)
        self._value_buffer, self.values = _appended(self._value_buffer, self.values, value_states)
        return self.keys, self.values

    @property
    def num_bytes_allocated(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self._key_buffer, self._value_buffer) if t is not None)


def _appended(buffer: Tensor | None, filled: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The buffer, and its part that is filled (B, h, N, d) followed by new (B, h, Nq, d).

    `filled` is the beginning of the buffer unless something else has been done to it (beams reordered, a layer moved to
    another device): then it is copied once.
    """
    N, total = filled.shape[2], filled.shape[2] + new.shape[2]
    if (
        buffer is None
        or buffer.shape[2] < total
        or buffer.data_ptr() != filled.data_ptr()
        or buffer.shape[0] != new.shape[0]
    ):
        buffer = new.new_empty(*new.shape[:2], total + _SLACK, new.shape[3])
        buffer[:, :, :N] = filled
    buffer[:, :, N:total] = new
    return buffer, buffer[:, :, :total]


def with_room_to_grow(cache: DynamicCache) -> DynamicCache:
    """The same, still empty cache with growing layers where it has full-attention ones."""
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def cache_bytes(cache: Cache) -> int:
    """Of the keys and values that are held for the next token."""
    layers = [layer for layer in cache.layers if isinstance(layer, CacheLayerMixin)]
    tensors = [t for layer in layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in tensors)
