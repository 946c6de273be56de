"""Attention under any visibility rule, in tiles: exact, differentiable, and nothing of size N² or N·W in memory.

Forward goes query block by query block: each row belongs to one tile, so nothing has to be merged. Blocks that all
see the same relative window (the inside of a sliding window) share one small mask and run in a single call over
*overlapping strided views* of k and v, without copies.

Backward goes key block by key block: the queries that see a key block are contiguous, so grad k and grad v of the
block are complete at once and only grad q is summed over tiles, where a query-major backward would sum two tensors.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from iha.ops.backends.kernels import attend_tile, attend_tile_backward
from iha.ops.masking import Masking
from iha.ops.precision import wide

Range = tuple[int, int]  # tokens [from, to)

_MAX_TILE_SCORES = 1 << 22  # (B x) queries x keys in one mask: 16 MiB in float32


class Tiling:
    """How attention of the tokens `queries` to the tokens `keys` is cut into tiles.

    Ranges are in tokens of the whole sequence; rows are virtual tokens, relative to the tensors at hand.
    """

    def __init__(self, masking: Masking, queries: Range, keys: Range, batch: int) -> None:
        self.masking, self.queries, self.keys, self.batch = masking, queries, keys, batch
        self.visibility = visibility = masking.visibility
        P, W = visibility.num_pseudo_heads, visibility.window
        self.P = P
        # Rows per block: small blocks waste little of a window, large ones feed the kernel better (docs/lab-notes.md).
        if W is None:
            sequences = batch if masking.per_sequence else 1
            rows = _clamp(_MAX_TILE_SCORES // (sequences * (keys[1] - keys[0]) * P), 32, 512)
            self.query_block = self.key_block = max(1, rows // P)
        else:
            self.query_block = max(1, _clamp(W * P // 16, 32, 256) // P)
            self.key_block = max(1, _clamp(W * P // 4, 64, 128) // P)
        self._last_bias: tuple[tuple[int, int, int], Tensor] | None = None

    def keys_seen_by(self, queries: Range) -> Range:
        back, ahead = self.visibility.reach_back, self.visibility.reach_ahead
        first = self.keys[0] if back is None else max(self.keys[0], queries[0] - back)
        last = self.keys[1] if ahead is None else min(self.keys[1], queries[1] + ahead)
        return first, last

    def queries_that_see(self, keys: Range) -> Range:
        back, ahead = self.visibility.reach_back, self.visibility.reach_ahead
        first = self.queries[0] if ahead is None else max(self.queries[0], keys[0] - ahead)
        last = self.queries[1] if back is None else min(self.queries[1], keys[1] + back)
        return first, max(first, last)

    def is_inside(self, queries: Range) -> bool:
        """A whole block whose window is cut off at neither end: all of these look alike."""
        back, ahead = self.visibility.reach_back, self.visibility.reach_ahead
        if back is None or ahead is None or queries[1] - queries[0] != self.query_block:
            return False
        return queries[0] - back >= self.keys[0] and queries[1] + ahead <= self.keys[1]

    def query_rows(self, tokens: Range) -> slice:
        return slice((tokens[0] - self.queries[0]) * self.P, (tokens[1] - self.queries[0]) * self.P)

    def key_rows(self, tokens: Range) -> slice:
        return slice((tokens[0] - self.keys[0]) * self.P, (tokens[1] - self.keys[0]) * self.P)

    def bias(self, queries: Range, keys: Range, like: Tensor) -> Tensor:
        """The tile's mask as the kernels take it, (queries*P, keys*P) or (B, 1, queries*P, keys*P)."""
        if self.masking.per_sequence:
            return self._bias(queries, keys, like).unsqueeze(1)
        look = (queries[0] - keys[0], queries[1] - queries[0], keys[1] - keys[0])  # all that a shared mask depends on
        # Tiles come in order, so one is enough: those that look alike follow each other.
        if self._last_bias is None or self._last_bias[0] != look:
            self._last_bias = look, self._bias(queries, keys, like)[0]
        return self._last_bias[1]

    def _bias(self, queries: Range, keys: Range, like: Tensor) -> Tensor:
        visible = self.masking.tile(queries, keys, like.device)
        zeros = torch.zeros(visible.shape, dtype=like.dtype, device=like.device)
        return zeros.masked_fill_(~visible, -torch.inf)


def forward_tiles(q: Tensor, k: Tensor, v: Tensor, tiling: Tiling, scale: float) -> tuple[Tensor, Tensor]:
    """q (B, queries*P, H, D), k and v (B, keys*P, G, D) to out, as q, and log-sum-exp (B, queries*P, H)."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=wide(q.dtype), device=q.device)
    tiles = list(blocks(tiling.queries, tiling.query_block))
    inside = [] if tiling.masking.per_sequence else [tile for tile in tiles if tiling.is_inside(tile)]
    if len(inside) <= q.shape[0]:
        inside = []  # one call per tile (over the batch) is then fewer calls than one per sequence (over the tiles)

    for queries in (tile for tile in tiles if not inside or not inside[0][0] <= tile[0] <= inside[-1][0]):
        keys = tiling.keys_seen_by(queries)
        bias = tiling.bias(queries, keys, q)
        rows, cols = tiling.query_rows(queries), tiling.key_rows(keys)
        for heads in _head_groups(q, k):
            tile_q, tile_k, tile_v = _heads_first(q[:, rows, heads], k[:, cols], v[:, cols])
            tile_out, tile_lse = attend_tile(tile_q, tile_k, tile_v, bias, scale)
            out[:, rows, heads], lse[:, rows, heads] = tile_out.transpose(1, 2), tile_lse.transpose(1, 2)

    if inside:
        keys = tiling.keys_seen_by(inside[0])
        bias = tiling.bias(inside[0], keys, q)
        rows = tiling.query_rows((inside[0][0], inside[-1][1]))
        cols = tiling.key_rows((keys[0], tiling.keys_seen_by(inside[-1])[1]))
        span, step = (keys[1] - keys[0]) * tiling.P, tiling.query_block * tiling.P
        for b in range(q.shape[0]):
            for heads in _head_groups(q, k):
                q_tiles = q[b, rows, heads].unflatten(0, (-1, step)).transpose(1, 2)  # (tiles, G, step, D)
                k_views, v_views = (t[b, cols].unfold(0, span, step).mT for t in (k, v))  # (tiles, G, span, D)
                tile_out, tile_lse = attend_tile(q_tiles, k_views, v_views, bias, scale)
                out[b, rows, heads] = tile_out.transpose(1, 2).flatten(0, 1)
                lse[b, rows, heads] = tile_lse.transpose(1, 2).flatten(0, 1)
    return out, lse


def backward_tiles(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, tiling: Tiling, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, in float32 at least: a sum over tiles kept in bfloat16 would round at every tile."""
    sums = wide(q.dtype)
    grad_q, grad_k, grad_v = (torch.zeros(t.shape, dtype=sums, device=t.device) for t in (q, k, v))
    for keys in blocks(tiling.keys, tiling.key_block):
        queries = tiling.queries_that_see(keys)
        if queries[0] == queries[1]:
            continue
        bias = tiling.bias(queries, keys, q)
        rows, cols = tiling.query_rows(queries), tiling.key_rows(keys)
        for heads in _head_groups(q, k):
            of_queries = _heads_first(grad[:, rows, heads], q[:, rows, heads], out[:, rows, heads], lse[:, rows, heads])
            tile_grad, tile_q, tile_out, tile_lse = of_queries
            tile_k, tile_v = _heads_first(k[:, cols], v[:, cols])
            grads = attend_tile_backward(tile_grad, tile_q, tile_k, tile_v, tile_out, tile_lse, bias, scale)
            grad_q[:, rows, heads] += grads[0].transpose(1, 2)
            grad_k[:, cols] += grads[1].transpose(1, 2)
            grad_v[:, cols] += grads[2].transpose(1, 2)
    return grad_q, grad_k, grad_v


def blocks(tokens: Range, size: int) -> Iterator[Range]:
    """The range in consecutive blocks of this size, the last one shorter if it must be."""
    return ((start, min(start + size, tokens[1])) for start in range(*tokens, size))


def _head_groups(q: Tensor, k: Tensor) -> Iterator[slice]:
    """Query heads in H/G groups, the r-th of every k/v head: G heads against G heads, without repeating k or v."""
    repeats = q.shape[2] // k.shape[2]
    return (slice(r, None, repeats) for r in range(repeats))


def _heads_first(*tensors: Tensor) -> Iterator[Tensor]:
    return (t.transpose(1, 2) for t in tensors)


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))
