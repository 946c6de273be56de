"""PyTorch's FLOP counter, extended to our own operators and to SDPA's CPU kernel.

`torch.utils.flop_counter.FlopCounterMode` looks operators up in a table and silently counts 0 for those it does not
find. Importing `iha.accounting` adds `iha::tiled_attention` and `iha::banded_attention` for all counters. The counter
returned by `flop_counter()` also knows the CPU kernel. Our formulas count what is executed, tile by tile, forward and
backward. Torch's formulas count SDPA as if nothing were masked, so global causal attention counts twice its cost.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from iha.ops.backends.banded import Segments
from iha.ops.backends.tiled import tiling_of
from iha.ops.backends.tiles import Tiling, blocks
from iha.ops.masking import PACKED_LENGTH, Masking
from iha.ops.mixing import is_per_head

_FORWARD, _BACKWARD = 2, 5  # matrix products per tile: scores, output; recomputed scores, four gradients


def flop_counter(display: bool = False) -> FlopCounterMode:
    aten = torch.ops.aten
    kernel = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return FlopCounterMode(display=display, custom_mapping={kernel: _sdpa, backward: _sdpa_backward})


def _sdpa(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """All pairs of every head, as in torch's own formulas. The arguments are shapes (B, H, L, D)."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def _sdpa_backward(grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return 2 * q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3])


@register_flop_formula(torch.ops.iha.tiled_attention, get_raw=True)
def _tiled(q: Tensor, k: Tensor, v: Tensor, *options: Any, **_: Any) -> int:
    return _FORWARD * _product(q, forward_pairs(tiling_of(q, k, _masking(options))))


@register_flop_formula(torch.ops.iha.tiled_attention_backward, get_raw=True)
def _tiled_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *options: Any, **_: Any
) -> int:
    return _BACKWARD * _product(q, backward_pairs(tiling_of(q, k, _masking(options))))


@register_flop_formula(torch.ops.iha.banded_attention, get_raw=True)
def _banded(
    q: Tensor, k: Tensor, v: Tensor, rows_q: Tensor, rows_k: Tensor, rows_v: Tensor, collapse: Tensor, *options: Any,
    **_: Any,
) -> int:  # fmt: skip
    B, D = q.shape[0], q.shape[3]
    segments = Segments.of(q, k, rows_q, rows_k, _masking(options))
    total = 0
    for queries in blocks((segments.first_query, segments.N), segments.segment):
        keys = segments.keys_seen_by(queries)
        # The windows of neighbouring segments overlap; the keys they share are mixed once per segment.
        mixed = (queries[1] - queries[0]) * (rows_q.numel() + _products(collapse, segments))
        mixed += (keys[1] - keys[0]) * (rows_k.numel() + rows_v.numel())
        pairs = forward_pairs(segments.tiling(queries, keys, B))
        total += 2 * B * D * (mixed + _FORWARD * segments.num_mixed_heads * pairs)
    return total


@register_flop_formula(torch.ops.iha.banded_attention_backward, get_raw=True)
def _banded_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, rows_q: Tensor, rows_k: Tensor, rows_v: Tensor, collapse: Tensor,
    virtual_out: Tensor, lse: Tensor, *options: Any, **_: Any,
) -> int:  # fmt: skip
    B, Nq, D = q.shape[0], q.shape[1], q.shape[3]
    segments = Segments.of(q, k, rows_q, rows_k, _masking(options))
    total = 2 * B * D * Nq * _products(collapse, segments)  # the gradient of R
    for keys in blocks((0, segments.N), segments.segment):
        queries = segments.queries_that_see(keys)
        if queries[0] == queries[1]:
            continue
        # q, k and v are mixed again, and each mixing has two gradients. For R only the input's gradient is left.
        mixed = (queries[1] - queries[0]) * (3 * rows_q.numel() + _products(collapse, segments))
        mixed += (keys[1] - keys[0]) * 3 * (rows_k.numel() + rows_v.numel())
        pairs = backward_pairs(segments.tiling(queries, keys, B))
        total += 2 * B * D * (mixed + _BACKWARD * segments.num_mixed_heads * pairs)
    return total


def _masking(options: Sequence[Any]) -> Masking:
    return Masking.unpack(*options[:PACKED_LENGTH])


def _products(collapse: Tensor, segments: Segments) -> int:
    """Multiply-adds of R per token and feature in matrix products; a per-head R is applied elementwise, uncounted."""
    return 0 if is_per_head(collapse, segments.num_mixed_heads, segments.P_q) else collapse.numel()


def forward_pairs(tiling: Tiling) -> int:
    """(virtual query, virtual key) pairs of one head in all tiles of the forward pass."""
    tiles = ((queries, tiling.keys_seen_by(queries)) for queries in blocks(tiling.queries, tiling.query_block))
    return sum(_area(*tile) for tile in tiles) * tiling.P_q * tiling.P_k


def backward_pairs(tiling: Tiling) -> int:
    tiles = ((keys, tiling.queries_that_see(keys)) for keys in blocks(tiling.keys, tiling.key_block))
    return sum(_area(*tile) for tile in tiles) * tiling.P_q * tiling.P_k


def _area(rows: tuple[int, int], columns: tuple[int, int]) -> int:
    return (rows[1] - rows[0]) * (columns[1] - columns[0])


def _product(q: Tensor, pairs: int) -> int:
    """FLOPs of one matrix product over `pairs` (query, key) pairs per head."""
    return 2 * q.shape[0] * q.shape[2] * q.shape[3] * pairs
