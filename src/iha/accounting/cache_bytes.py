"""How large the decoding cache of a schedule is after N tokens, for one sequence.

What is cached are heads before mixing, G per token (`iha.KVCache`). Caching pseudo-heads instead, as Algorithm 1 read
literally would, takes P times as much.
"""

from iha.accounting.mechanisms import AttentionShape, layer_of
from iha.layers.schedule import LayerSpec, Schedule


def layer_cache_bytes(
    shape: AttentionShape, spec: LayerSpec, num_tokens: int, element_size: int = 2, *, pseudo_heads: bool = False
) -> int | None:
    """Of keys and values; None where there can be no cache. `pseudo_heads`: if those were cached, not the heads."""
    return layer_of(shape, spec).cache_bytes(num_tokens, element_size, pseudo_heads=pseudo_heads)


def schedule_cache_bytes(
    shape: AttentionShape, schedule: Schedule, num_tokens: int, element_size: int = 2
) -> int | None:
    sizes = [layer_cache_bytes(shape, spec, num_tokens, element_size) for spec in schedule]
    return None if None in sizes else sum(size for size in sizes if size is not None)
