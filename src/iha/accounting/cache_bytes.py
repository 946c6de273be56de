"""How large the decoding cache of a layer is after N tokens, for one sequence.

What is cached are heads before mixing, G of them a token (`iha.KVCache`). Caching pseudo-heads instead, as Algorithm 1
read literally would, takes P times as much.
"""

from iha.accounting.mechanisms import AttentionShape, describe
from iha.accounting.pairs import bounds
from iha.layers.schedule import LayerSpec, Schedule


def kept_keys(shape: AttentionShape, spec: LayerSpec, num_tokens: int) -> tuple[int, int]:
    """(tokens, virtual keys) among the N seen that the next token can still look at."""
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
    P = spec.num_pseudo_heads
    first, _ = bounds(shape.visibility(spec), num_tokens * P)  # of the next token's first pseudo-query
    return num_tokens - first // P, num_tokens * P - first


def has_cache(shape: AttentionShape, spec: LayerSpec) -> bool:
    """Not without causality, where earlier outputs would change, nor where rows need the queries before them."""
    return shape.causal is not None and spec.mechanism != "multi_token"


def layer_cache_bytes(
    shape: AttentionShape, spec: LayerSpec, num_tokens: int, element_size: int = 2, *, pseudo_heads: bool = False
) -> int | None:
    """Of keys and values; None where there can be no cache. `pseudo_heads`: if those were cached, not the heads."""
    mechanism = describe(shape, spec)
    kept = kept_keys(shape, spec, num_tokens)[1 if pseudo_heads else 0]
    if not has_cache(shape, spec):
        return None
    return 2 * mechanism.key_value_sets * kept * shape.G * shape.D * element_size


def schedule_cache_bytes(
    shape: AttentionShape, schedule: Schedule, num_tokens: int, element_size: int = 2
) -> int | None:
    sizes = [layer_cache_bytes(shape, spec, num_tokens, element_size) for spec in schedule]
    return None if None in sizes else sum(size for size in sizes if size is not None)
