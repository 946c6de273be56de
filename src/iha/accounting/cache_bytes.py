"""How large the decoding cache of a schedule is after N tokens, for one sequence.

The cache holds the G KV heads of each token before mixing (`iha.KVCache`). Algorithm 1, taken literally, would cache
pseudo-heads instead; that takes P times as much memory.
"""

from iha.accounting.mechanisms import AttentionShape, layer_of
from iha.layers.schedule import LayerSpec, Schedule


def layer_cache_bytes(
    shape: AttentionShape, spec: LayerSpec, num_tokens: int, element_size: int = 2, *, pseudo_heads: bool = False
) -> int | None:
    """Bytes of keys and values; None if the layer cannot be cached. `pseudo_heads`: as if pseudo-heads were cached."""
    return layer_of(shape, spec).cache_bytes(num_tokens, element_size, pseudo_heads=pseudo_heads)


def schedule_cache_bytes(
    shape: AttentionShape, schedule: Schedule, num_tokens: int, element_size: int = 2
) -> int | None:
    sizes = [layer_cache_bytes(shape, spec, num_tokens, element_size) for spec in schedule]
    return None if None in sizes else sum(size for size in sizes if size is not None)
