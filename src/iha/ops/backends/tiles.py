"""Attention under any visibility rule, in tiles: exact, differentiable, and nothing of size N² or N·W in memory.

The forward pass iterates over query blocks. Each row belongs to one tile, so no partial results have to be merged.
Blocks whose window is cut off at neither end of the sequence see the same relative keys. They share one small mask and
run in a single call over *overlapping strided views* of k and v, without copies.

The backward pass iterates over key blocks. The queries that see a key block are contiguous, so one tile gives the
complete grad k and grad v of the block. Only grad q is summed over tiles; iterating over query blocks would sum two
tensors, grad k and grad v.

Where every row sees a contiguous range of keys, in float32 on CPU, our own kernel does all of it (band_native.py).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from iha.ops.backends.band_native import Ranges, backward_ranges, forward_ranges, runs_natively
from iha.ops.backends.kernels import attend_tile, attend_tile_backward
from iha.ops.masking import Masking
from iha.ops.precision import wide

Range = tuple[int, int]  # tokens [from, to)

_MAX_TILE_SCORES = 1 << 22  # (B x) queries x keys in one mask: 16 MiB in float32


class Tiling:
    """How attention from the tokens `queries` to the tokens `keys` is cut into tiles.

    Ranges are token indices in the whole sequence. Row slices are in virtual tokens and index into the given tensors.
    """

    def __init__(self, masking: Masking, queries: Range, keys: Range, batch: int) -> None:
        self.masking, self.queries, self.keys, self.batch = masking, queries, keys, batch
        self.visibility = visibility = masking.visibility
        (P_q, P_k), W = visibility.per_token, visibility.window
        self.P_q, self.P_k = P_q, P_k
        # Rows per block: small blocks compute few masked pairs, large ones use the kernel better (docs/lab-notes.md).
        if W is None:
            sequences = batch if masking.per_sequence else 1
            scores = _MAX_TILE_SCORES // (sequences * (keys[1] - keys[0]))
            self.query_block = max(1, _clamp(scores // P_k, 32, 512) // P_q)
            self.key_block = max(1, _clamp(scores // P_q, 32, 512) // P_k)
        else:
            self.query_block = max(1, _clamp(W * P_k // 16, 64, 256) // P_q)
            self.key_block = max(1, _clamp(W * P_q // 4, 64, 128) // P_k)
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
        """Whether this is a full block whose window is cut off at neither end. All such blocks have the same mask."""
        back, ahead = self.visibility.reach_back, self.visibility.reach_ahead
        if back is None or ahead is None or queries[1] - queries[0] != self.query_block:
            return False
        return queries[0] - back >= self.keys[0] and queries[1] + ahead <= self.keys[1]

    def query_rows(self, tokens: Range) -> slice:
        return slice((tokens[0] - self.queries[0]) * self.P_q, (tokens[1] - self.queries[0]) * self.P_q)

    def key_rows(self, tokens: Range) -> slice:
        return slice((tokens[0] - self.keys[0]) * self.P_k, (tokens[1] - self.keys[0]) * self.P_k)

    def key_ranges(self, like: Tensor) -> Ranges | None:
        """What each row sees as a range of keys, where our own kernel computes attention; None where tiles do."""
        return self.masking.key_ranges(self.queries, self.keys, like.device) if runs_natively(like) else None

    def bias(self, queries: Range, keys: Range, like: Tensor) -> Tensor:
        """The tile's mask as the kernels take it, (queries*P_q, keys*P_k) or (B, 1, queries*P_q, keys*P_k)."""
        if self.masking.per_sequence:
            return self._bias(queries, keys, like).unsqueeze(1)
        look = (queries[0] - keys[0], queries[1] - queries[0], keys[1] - keys[0])  # all that a shared mask depends on
        # Tiles come in order, and tiles with equal masks are adjacent: keeping the last mask is enough.
        if self._last_bias is None or self._last_bias[0] != look:
            self._last_bias = look, self._bias(queries, keys, like)[0]
        return self._last_bias[1]

    def _bias(self, queries: Range, keys: Range, like: Tensor) -> Tensor:
        visible = self.masking.tile(queries, keys, like.device)
        zeros = torch.zeros(visible.shape, dtype=like.dtype, device=like.device)
        return zeros.masked_fill_(~visible, -torch.inf)


def forward_tiles(
    q: Tensor, k: Tensor, v: Tensor, tiling: Tiling, scale: float, into: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """From q (B, queries*P_q, H, D), k and v (B, keys*P_k, G, D): out, like q, and log-sum-exp (B, queries*P_q, H).

    The results are written `into` two tensors of these shapes, if given.
    """
    if into is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        into = out, torch.empty(q.shape[:3], dtype=wide(q.dtype), device=q.device)
    out, lse = into
    if (ranges := tiling.key_ranges(q)) is not None:
        forward_ranges(q, k, v, ranges, scale, into)
        return into
    tiles = list(blocks(tiling.queries, tiling.query_block))
    inside = [] if tiling.masking.per_sequence else [tile for tile in tiles if tiling.is_inside(tile)]
    if len(inside) <= q.shape[0]:
        inside = []  # then one call per tile (over the batch) needs no more calls than one per sequence (over tiles)

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
        span, step = (keys[1] - keys[0]) * tiling.P_k, tiling.query_block * tiling.P_k
        for b in range(q.shape[0]):
            for heads in _head_groups(q, k):
                q_tiles = q[b, rows, heads].unflatten(0, (len(inside), -1)).transpose(1, 2)  # (tiles, G, rows, D)
                k_views, v_views = (t[b, cols].unfold(0, span, step).mT for t in (k, v))  # (tiles, G, span, D)
                tile_out, tile_lse = attend_tile(q_tiles, k_views, v_views, bias, scale)
                out[b, rows, heads] = tile_out.transpose(1, 2).flatten(0, 1)
                lse[b, rows, heads] = tile_lse.transpose(1, 2).flatten(0, 1)
    return out, lse


def backward_tiles(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, tiling: Tiling, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, in at least float32: a bfloat16 sum over tiles would be rounded at every tile."""
    if (ranges := tiling.key_ranges(q)) is not None:
        return backward_ranges(grad, q, k, v, out, lse, ranges, scale)
    sums = wide(q.dtype)
    grad_q = torch.zeros(q.shape, dtype=sums, device=q.device)
    grad_k, grad_v = (torch.empty(t.shape, dtype=sums, device=t.device) for t in (k, v))
    groups = list(_head_groups(q, k))
    by_group = [tuple(_heads_first(*(t[:, :, heads] for t in (grad, q, out, lse, grad_q)))) for heads in groups]
    of_keys = tuple(_heads_first(k, v, grad_k, grad_v))
    for keys in blocks(tiling.keys, tiling.key_block):
        queries = tiling.queries_that_see(keys)
        rows, cols = tiling.query_rows(queries), tiling.key_rows(keys)
        tile_k, tile_v, tile_grad_k, tile_grad_v = (t[:, :, cols] for t in of_keys)
        if queries[0] == queries[1]:
            tile_grad_k.zero_()
            tile_grad_v.zero_()
            continue
        bias = tiling.bias(queries, keys, q)
        for n, of_queries in enumerate(by_group):
            tile_grad, tile_q, tile_out, tile_lse, tile_grad_q = (t[:, :, rows] for t in of_queries)
            grads = attend_tile_backward(tile_grad, tile_q, tile_k, tile_v, tile_out, tile_lse, bias, scale)
            tile_grad_q += grads[0]
            if n == 0:  # a key block has one tile, so only head groups are summed
                tile_grad_k.copy_(grads[1])
                tile_grad_v.copy_(grads[2])
            else:
                tile_grad_k += grads[1]
                tile_grad_v += grads[2]
    return grad_q, grad_k, grad_v


def blocks(tokens: Range, size: int) -> Iterator[Range]:
    """Consecutive blocks of this size that cover the range; the last one may be shorter."""
    return ((start, min(start + size, tokens[1])) for start in range(*tokens, size))


def _head_groups(q: Tensor, k: Tensor) -> Iterator[slice]:
    """H/G groups of G query heads. Group r has the r-th query head of every KV head, so k and v are not repeated."""
    repeats = q.shape[2] // k.shape[2]
    return (slice(r, None, repeats) for r in range(repeats))


def _heads_first(*tensors: Tensor) -> Iterator[Tensor]:
    return (t.transpose(1, 2) for t in tensors)


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))
