"""PyTorch's FLOP counter, taught what it cannot see: our operators, and SDPA's kernel on CPU.

`torch.utils.flop_counter.FlopCounterMode` looks operators up in a table and counts nothing, without a word, for those
that are not there. Importing `iha.accounting` adds `iha::tiled_attention` and `iha::banded_attention` for all counters;
`flop_counter()` is one that knows the CPU kernel too. Ours count what is executed, tile by tile, forward and backward.
Torch's formulas count SDPA as if nothing were masked: global causal attention comes out at twice what it needs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from iha.ops.backends.banded import Segments
from iha.ops.backends.tiled import tiling_of
from iha.ops.backends.tiles import Tiling, blocks
from iha.ops.masking import Masking

_FORWARD, _BACKWARD = 2, 5  # products of a tile: scores and output; scores again and one for each of four gradients


def flop_counter(display: bool = False) -> FlopCounterMode:
    aten = torch.ops.aten
    kernel = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return FlopCounterMode(display=display, custom_mapping={kernel: _sdpa, backward: _sdpa_backward})


def _sdpa(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """All pairs of every head, as torch's own formulas have it; arguments are shapes (B, H, L, D)."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def _sdpa_backward(grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return 2 * q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3])


@register_flop_formula(torch.ops.iha.tiled_attention, get_raw=True)
def _tiled(
    q: Tensor, k: Tensor, v: Tensor, causal: str | None, window: int | None, P: int, padding: Tensor | None,
    documents: Tensor | None, *_: Any, **__: Any,
) -> int:  # fmt: skip
    return _FORWARD * _product(q, forward_pairs(tiling_of(q, k, Masking.unpack(causal, window, P, padding, documents))))


@register_flop_formula(torch.ops.iha.tiled_attention_backward, get_raw=True)
def _tiled_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: str | None, window: int | None,
    P: int, padding: Tensor | None, documents: Tensor | None, *_: Any, **__: Any,
) -> int:  # fmt: skip
    return _BACKWARD * _product(
        q, backward_pairs(tiling_of(q, k, Masking.unpack(causal, window, P, padding, documents)))
    )


@register_flop_formula(torch.ops.iha.banded_attention, get_raw=True)
def _banded(
    q: Tensor, k: Tensor, v: Tensor, rows_q: Tensor, rows_k: Tensor, rows_v: Tensor, rows_out: Tensor,
    causal: str | None, window: int | None, P: int, padding: Tensor | None, documents: Tensor | None,
    *_: Any, **__: Any,
) -> int:  # fmt: skip
    B, D = q.shape[0], q.shape[3]
    segments = Segments.of(q, k, Masking.unpack(causal, window, P, padding, documents))
    total = 0
    for queries in blocks((segments.first_query, segments.N), segments.segment):
        keys = segments.keys_seen_by(queries)
        # Neighbouring segments share the keys of a window, and mix them twice.
        mixed = (queries[1] - queries[0]) * (rows_q.numel() + rows_out.numel())
        mixed += (keys[1] - keys[0]) * (rows_k.numel() + rows_v.numel())
        total += 2 * B * D * mixed + _FORWARD * _product(q, forward_pairs(segments.tiling(queries, keys, B)))
    return total


@register_flop_formula(torch.ops.iha.banded_attention_backward, get_raw=True)
def _banded_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, rows_q: Tensor, rows_k: Tensor, rows_v: Tensor, rows_out: Tensor,
    virtual_out: Tensor, lse: Tensor, causal: str | None, window: int | None, P: int,
    padding: Tensor | None, documents: Tensor | None, *_: Any, **__: Any,
) -> int:  # fmt: skip
    B, Nq, D = q.shape[0], q.shape[1], q.shape[3]
    segments = Segments.of(q, k, Masking.unpack(causal, window, P, padding, documents))
    total = 2 * B * D * Nq * rows_out.numel()  # the gradient of R
    for keys in blocks((0, segments.N), segments.segment):
        queries = segments.queries_that_see(keys)
        if queries[0] == queries[1]:
            continue
        # q, k and v are mixed again, and each mix has two gradients; R only passes its gradient on.
        mixed = (queries[1] - queries[0]) * (3 * rows_q.numel() + rows_out.numel())
        mixed += (keys[1] - keys[0]) * 3 * (rows_k.numel() + rows_v.numel())
        total += 2 * B * D * mixed + _BACKWARD * _product(q, backward_pairs(segments.tiling(queries, keys, B)))
    return total


def forward_pairs(tiling: Tiling) -> int:
    """(virtual query, virtual key) pairs of one head in all tiles of the forward pass."""
    tiles = ((queries, tiling.keys_seen_by(queries)) for queries in blocks(tiling.queries, tiling.query_block))
    return sum(_area(*tile) for tile in tiles) * tiling.P**2


def backward_pairs(tiling: Tiling) -> int:
    tiles = ((keys, tiling.queries_that_see(keys)) for keys in blocks(tiling.keys, tiling.key_block))
    return sum(_area(*tile) for tile in tiles) * tiling.P**2


def _area(rows: tuple[int, int], columns: tuple[int, int]) -> int:
    return (rows[1] - rows[0]) * (columns[1] - columns[0])


def _product(q: Tensor, pairs: int) -> int:
    """FLOPs of one matrix product over so many pairs per head."""
    return 2 * q.shape[0] * q.shape[2] * q.shape[3] * pairs
