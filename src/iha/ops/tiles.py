"""Attention under any visibility rule, in tiles: exact, differentiable, and nothing of size N² or N·W in memory.

Forward goes query block by query block: each row belongs to one tile, so nothing has to be merged. Blocks that all
see the same relative window (the inside of a sliding window) share one small mask and run in a single call over
*overlapping strided views* of k and v, without copies.

Backward goes key block by key block: the queries that see a key block are contiguous, so grad k and grad v of the
block are complete at once and only grad q is summed over tiles, where a query-major backward would sum two tensors.

Both are opaque operators to torch.compile, which would otherwise copy the overlapping views.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from iha.ops.kernels import attend_tile, attend_tile_backward
from iha.ops.visibility import Causality, Visibility, visible_tile

_MAX_TILE_SCORES = 1 << 22  # (B x) queries x keys in one mask: 16 MiB in float32


def tiled_attention(
    q: Tensor,  # (B, Nq*P, H, D)
    k: Tensor,  # (B, N*P, G, D)
    v: Tensor,  # (B, N*P, G, D)
    visibility: Visibility,
    key_padding_mask: Tensor | None,  # (B, N) bool; the caller zeroes k and v of padded tokens
    document_ids: Tensor | None,  # (B, N) int
    scale: float,
) -> Tensor:  # (B, Nq*P, H, D)
    out, _ = _forward(
        q, k, v, visibility.causal, visibility.window, visibility.num_pseudo_heads, key_padding_mask, document_ids, scale
    )
    return out


@torch.library.custom_op("iha::tiled_attention", mutates_args=())
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None,
    window: int | None,
    num_pseudo_heads: int,
    key_padding_mask: Tensor | None,
    document_ids: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    plan = _Plan(q, k, causal, window, num_pseudo_heads, key_padding_mask, document_ids)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)  # (B, Nq*P, H, D)
    lse = torch.empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32), device=q.device)  # (B, Nq*P, H)
    blocks = list(_blocks(plan.first_query, plan.N, plan.query_block))
    inside = [block for block in blocks if plan.is_inside(block)] if plan.homogeneous else []
    batched = inside if len(inside) > q.shape[0] else []  # else a call per block is fewer calls than one per sequence

    for queries in (block for block in blocks if block not in batched):
        keys = plan.keys_seen_by(queries)
        bias = plan.bias(queries, keys)
        rows, cols = plan.query_rows(queries), plan.key_rows(keys)
        for heads in plan.head_groups():
            o, l = attend_tile(*_heads_first(q[:, rows, heads], k[:, cols], v[:, cols]), bias, scale)
            out[:, rows, heads], lse[:, rows, heads] = o.transpose(1, 2), l.transpose(1, 2)

    if batched:
        P, c = plan.P, plan.query_block
        keys = plan.keys_seen_by(batched[0])
        bias = plan.bias(batched[0], keys)
        rows = plan.query_rows((batched[0][0], batched[-1][1]))
        cols = plan.key_rows((keys[0], plan.keys_seen_by(batched[-1])[1]))
        span = (keys[1] - keys[0]) * P
        for b in range(q.shape[0]):
            for heads in plan.head_groups():
                q_blocks = q[b, rows, heads].unflatten(0, (-1, c * P)).transpose(1, 2)  # (blocks, G, c*P, D)
                k_views, v_views = (
                    t[b, cols].unfold(0, span, c * P).transpose(-1, -2) for t in (k, v)  # (blocks, G, span, D)
                )
                o, l = attend_tile(q_blocks, k_views, v_views, bias, scale)
                out[b, rows, heads] = o.transpose(1, 2).flatten(0, 1)
                lse[b, rows, heads] = l.transpose(1, 2).flatten(0, 1)
    return out, lse


@torch.library.custom_op("iha::tiled_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: str | None,
    window: int | None,
    num_pseudo_heads: int,
    key_padding_mask: Tensor | None,
    document_ids: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    plan = _Plan(q, k, causal, window, num_pseudo_heads, key_padding_mask, document_ids)
    grad = grad.contiguous()  # autograd may hand over an expanded scalar, which the kernels cannot read
    # Sums over tiles are kept in float32: in bfloat16 every further tile would round the sum again.
    sums = torch.promote_types(q.dtype, torch.float32)
    grad_q = torch.zeros(q.shape, dtype=sums, device=q.device)
    grad_k, grad_v = (torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in (k, v))
    for keys in _blocks(0, plan.N, plan.key_block):
        queries = plan.queries_that_see(keys)
        if queries[0] >= queries[1]:
            continue
        bias = plan.bias(queries, keys)
        rows, cols = plan.query_rows(queries), plan.key_rows(keys)
        block_k, block_v = (torch.zeros((), dtype=sums, device=q.device) for _ in range(2))
        for heads in plan.head_groups():
            tensors = (grad[:, rows, heads], q[:, rows, heads], k[:, cols], v[:, cols], out[:, rows, heads])
            tile = attend_tile_backward(*_heads_first(*tensors), lse[:, rows, heads].transpose(1, 2), bias, scale)
            gq, gk, gv = (t.transpose(1, 2) for t in tile)
            grad_q[:, rows, heads] += gq
            block_k, block_v = block_k + gk, block_v + gv
        grad_k[:, cols], grad_v[:, cols] = block_k, block_v
    return grad_q.to(q.dtype), grad_k, grad_v


class _Plan:
    """How one call is cut into tiles. Ranges are in tokens, [from, to); rows are virtual, relative to q and k."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        causal: str | None,
        window: int | None,
        P: int,
        key_padding_mask: Tensor | None,
        document_ids: Tensor | None,
    ) -> None:
        self.visibility = Visibility(_causality(causal), window, P)
        self.masks = (key_padding_mask, document_ids)
        self.homogeneous = key_padding_mask is None and document_ids is None
        self.P, self.N = P, k.shape[1] // P
        self.first_query = self.N - q.shape[1] // P
        self.H, self.G, self.like = q.shape[2], k.shape[2], q
        self.back = self.N if self.visibility.reach_back is None else self.visibility.reach_back
        self.ahead = self.N if self.visibility.reach_ahead is None else self.visibility.reach_ahead
        # Rows per block: small blocks waste little of a window, large ones feed the kernel better (docs/lab-notes.md).
        if window is None:
            sequences = 1 if self.homogeneous else q.shape[0]
            rows = _clamp(_MAX_TILE_SCORES // (sequences * k.shape[1]), 32, 512)
            self.query_block = self.key_block = max(1, rows // P)
        else:
            self.query_block = max(1, _clamp(window * P // 8, 32, 256) // P)
            self.key_block = max(1, _clamp(window * P // 4, 64, 128) // P)
        self._biases: dict[tuple[int, int, int], Tensor] = {}

    def keys_seen_by(self, queries: tuple[int, int]) -> tuple[int, int]:
        return max(0, queries[0] - self.back), min(self.N, queries[1] + self.ahead)

    def queries_that_see(self, keys: tuple[int, int]) -> tuple[int, int]:
        return max(self.first_query, keys[0] - self.ahead), min(self.N, keys[1] + self.back)

    def is_inside(self, queries: tuple[int, int]) -> bool:
        """A whole block whose window is cut off at neither end: all of these look alike."""
        whole = queries[1] - queries[0] == self.query_block
        return whole and queries[0] >= self.back and queries[1] + self.ahead <= self.N

    def query_rows(self, tokens: tuple[int, int]) -> slice:
        return slice((tokens[0] - self.first_query) * self.P, (tokens[1] - self.first_query) * self.P)

    def key_rows(self, tokens: tuple[int, int]) -> slice:
        return slice(tokens[0] * self.P, tokens[1] * self.P)

    def head_groups(self) -> Iterator[slice]:
        """Query heads in H/G groups, the r-th of every k/v head: G heads against G heads, without repeating k or v."""
        repeats = self.H // self.G
        return (slice(r, None, repeats) for r in range(repeats))

    def bias(self, queries: tuple[int, int], keys: tuple[int, int]) -> Tensor:
        """The tile's mask as the kernels take it, (queries*P, keys*P) or (B, 1, queries*P, keys*P)."""
        if not self.homogeneous:
            return self._bias(queries, keys).unsqueeze(1)
        look = (queries[0] - keys[0], queries[1] - queries[0], keys[1] - keys[0])  # all that a shared mask depends on
        if look not in self._biases:
            self._biases[look] = self._bias(queries, keys)[0]
        return self._biases[look]

    def _bias(self, queries: tuple[int, int], keys: tuple[int, int]) -> Tensor:
        visible = visible_tile(self.visibility, queries, keys, *self.masks, device=self.like.device)
        zeros = torch.zeros(visible.shape, dtype=self.like.dtype, device=self.like.device)
        return zeros.masked_fill_(~visible, -torch.inf)


def _blocks(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    return ((t, min(t + size, stop)) for t in range(start, stop, size))


def _heads_first(*tensors: Tensor) -> Iterator[Tensor]:
    return (t.transpose(1, 2) for t in tensors)


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _causality(name: str | None) -> Causality:
    assert name in ("virtual", "token", None)
    return name  # type: ignore[return-value]  # operators take plain strings


def _fake_forward(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(
        q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32)
    )


def _fake_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, k, v))  # type: ignore[return-value]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *options, key_padding_mask, document_ids, scale = inputs
    ctx.save_for_backward(q, k, v, *output, key_padding_mask, document_ids)
    ctx.options, ctx.scale = options, scale  # type: ignore[attr-defined]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, key_padding_mask, document_ids = ctx.saved_tensors  # type: ignore[attr-defined]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]] = _backward
    grads = backward(grad, *tensors, *ctx.options, key_padding_mask, document_ids, ctx.scale)  # type: ignore[attr-defined]
    return *grads, None, None, None, None, None, None


_forward.register_fake(_fake_forward)
_backward.register_fake(_fake_backward)
_forward.register_autograd(_differentiate, setup_context=_save)
