"""Sliding-window interleaved head attention, including mixing and collapse, segment by segment.

Under a sliding window a query needs the pseudo-heads of only a few tokens. So each segment of the sequence is mixed,
attended and collapsed before the next one starts: the N·P virtual tokens are never in memory at once, and a segment
stays in the CPU cache. The backward pass mixes again, for a few percent of the attention's cost. Training then stores
only the un-mixed q, k, v and the attention output: 3 + P tensors of size N·H·D instead of 3 + 4P.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from iha.ops.backends.tiles import Range, Tiling, backward_tiles, blocks, forward_tiles
from iha.ops.masking import PACKED_LENGTH, PACKED_SCHEMA, Masking
from iha.ops.mixing import (
    collapse_grad,
    collapse_pseudo_heads,
    collapse_pseudo_heads_backward,
    combine_heads,
    combine_heads_rows_grad,
    mixing_rows,
)
from iha.ops.precision import wide
from iha.ops.rotary import rotate_pseudo_heads_

# Size of one mixed tensor: large enough for efficient calls, small enough that malloc reuses the memory.
_SEGMENT_BYTES = 1 << 22

_TENSORS = (
    "Tensor q, Tensor k, Tensor v, "  # un-mixed heads: (B, Nq, H, D), (B, N, G, D) twice
    "Tensor rows_q, Tensor rows_k, Tensor rows_v, "  # alpha as matrices: (P_q*H', H), (P_k*G', G) twice
    "Tensor collapse"  # R: (H, P_q) or (H, H'*P_q)
)
_OPTIONS = f"{PACKED_SCHEMA}, Tensor? cos, Tensor? sin, float scale"  # cos and sin: (P, D/2)


def banded_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N, G, D)
    v: Tensor,  # (B, N, G, D)
    alpha_q: Tensor,  # (H, H', P_q)
    alpha_k: Tensor,  # (G, G', P_k)
    alpha_v: Tensor,  # (G, G', P_k)
    collapse: Tensor,  # (H, P_q) or (H, H'*P_q)
    masking: Masking,  # the caller zeroes q, k and v of padded tokens
    pseudo_rotary: tuple[Tensor, Tensor] | None,  # cos and sin (P, D/2) of pseudo-head p; q and k are rotated already
    scale: float,
) -> Tensor:  # (B, Nq, H, D)
    tensors = (
        q.contiguous(), k.contiguous(), v.contiguous(),
        mixing_rows(alpha_q), mixing_rows(alpha_k), mixing_rows(alpha_v), collapse,
    )  # fmt: skip
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    out, _, _ = _forward(*tensors, *masking.pack(), *(pseudo_rotary or (None, None)), scale, keep)
    return out


@dataclass(frozen=True)
class Segments:
    """Cuts the sequence into segments: their tokens and masks, and the mixing of heads into pseudo-heads."""

    masking: Masking
    first_query: int
    N: int
    segment: int
    num_mixed_heads: int  # H'

    @staticmethod
    def of(q: Tensor, k: Tensor, rows_q: Tensor, rows_k: Tensor, masking: Masking) -> "Segments":
        N, Nq = k.shape[1], q.shape[1]
        block = Tiling(Masking(masking.visibility), (0, N), (0, N), q.shape[0]).query_block
        mixed = max(rows_q.shape[0], rows_k.shape[0])  # pseudo-heads of a token
        bytes_a_token = q.shape[0] * mixed * q.shape[3] * q.element_size()
        # A segment is a whole number of blocks, so that tiles are the same as without segments. It is at least as long
        # as the window, because every segment mixes the pseudo-keys of its window again. It is at most a quarter of
        # the sequence (if the window allows), even if the whole sequence would fit.
        wanted = max(min(_SEGMENT_BYTES // bytes_a_token, N // 4), masking.visibility.window or N, block)
        segment = wanted // block * block
        return Segments(masking, N - Nq, N, segment, rows_q.shape[0] // masking.visibility.num_pseudo_heads)

    def tiling(self, queries: Range, keys: Range, batch: int) -> Tiling:
        return Tiling(self.masking, queries, keys, batch)

    @property
    def P_q(self) -> int:  # noqa: N802
        return self.masking.visibility.per_token[0]

    @property
    def P_k(self) -> int:  # noqa: N802
        return self.masking.visibility.per_token[1]

    def keys_seen_by(self, queries: Range) -> Range:
        return self.tiling(queries, (0, self.N), 1).keys_seen_by(queries)

    def queries_that_see(self, keys: Range) -> Range:
        return self.tiling((self.first_query, self.N), keys, 1).queries_that_see(keys)

    def rows(self, queries: Range) -> slice:
        return slice(queries[0] - self.first_query, queries[1] - self.first_query)

    def virtual_rows(self, queries: Range) -> slice:
        return slice((queries[0] - self.first_query) * self.P_q, (queries[1] - self.first_query) * self.P_q)

    def pseudo_heads(
        self, x: Tensor, rows: Tensor, P: int, cos: Tensor | None = None, sin: Tensor | None = None
    ) -> Tensor:
        """Mix x (B, n, H, D) into (B, n*P, H', D). With a table, rotate pseudo-head p by its row p."""
        pseudo = combine_heads(rows, x).unflatten(2, (P, -1))  # (B, n, P, H', D)
        if cos is not None and sin is not None:
            rotate_pseudo_heads_(pseudo, cos, sin)
        return pseudo.flatten(1, 2)

    def pseudo_heads_backward(
        self, grad: Tensor, x: Tensor, rows: Tensor, P: int, cos: Tensor | None = None, sin: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gradients of x and of rows, in grad's dtype. grad is overwritten by its rotation back."""
        grad = grad.unflatten(1, (-1, P))  # (B, n, P, H', D)
        if cos is not None and sin is not None:
            rotate_pseudo_heads_(grad, cos, -sin)
        grad = grad.flatten(2, 3)  # (B, n, P*H', D)
        return combine_heads(rows.t().to(grad.dtype), grad), combine_heads_rows_grad(grad, x.to(grad.dtype))


@torch.library.custom_op(
    "iha::banded_attention", mutates_args=(), schema=f"({_TENSORS}, {_OPTIONS}, bool keep) -> (Tensor, Tensor, Tensor)"
)
def _forward(
    q: Tensor, k: Tensor, v: Tensor, rows_q: Tensor, rows_k: Tensor, rows_v: Tensor, collapse: Tensor, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *packed, cos, sin, scale, keep = options
    local = Segments.of(q, k, rows_q, rows_k, Masking.unpack(*packed))
    out, virtual_out, lse = _outputs(q, rows_q, local.P_q, keep)
    if not keep:  # one segment's, overwritten by the next
        _, virtual_out, lse = _outputs(q[:, : local.segment], rows_q, local.P_q, True)
    for queries in blocks((local.first_query, local.N), local.segment):
        keys = local.keys_seen_by(queries)
        virtual = local.virtual_rows(queries) if keep else slice(0, (queries[1] - queries[0]) * local.P_q)
        forward_tiles(
            local.pseudo_heads(q[:, local.rows(queries)], rows_q, local.P_q, cos, sin),
            local.pseudo_heads(k[:, slice(*keys)], rows_k, local.P_k, cos, sin),
            local.pseudo_heads(v[:, slice(*keys)], rows_v, local.P_k),
            local.tiling(queries, keys, q.shape[0]),
            scale,
            into=(virtual_out[:, virtual], lse[:, virtual]),
        )
        out[:, local.rows(queries)] = collapse_pseudo_heads(virtual_out[:, virtual], collapse, local.P_q)
    return (out, virtual_out, lse) if keep else (out, *_outputs(q, rows_q, local.P_q, False)[1:])


@torch.library.custom_op(
    "iha::banded_attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_TENSORS}, Tensor virtual_out, Tensor lse, {_OPTIONS}) -> ({', '.join(['Tensor'] * 7)})",
)
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, rows_q: Tensor, rows_k: Tensor, rows_v: Tensor, collapse: Tensor,
    virtual_out: Tensor, lse: Tensor, *options: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    *packed, cos, sin, scale = options
    local = Segments.of(q, k, rows_q, rows_k, Masking.unpack(*packed))
    sums, grad = wide(q.dtype), grad.contiguous()
    tensors = (q, k, v, rows_q, rows_k, rows_v, collapse)
    grads = tuple(torch.zeros(t.shape, dtype=sums, device=t.device) for t in tensors)
    grad_q, grad_k, grad_v, grad_rows_q, grad_rows_k, grad_rows_v, grad_collapse = grads
    for queries in blocks((local.first_query, local.N), local.segment):
        pseudo = virtual_out[:, local.virtual_rows(queries)].to(sums)
        grad_collapse += collapse_grad(grad[:, local.rows(queries)].to(sums), pseudo, collapse, local.P_q)

    for keys in blocks((0, local.N), local.segment):
        queries = local.queries_that_see(keys)
        if queries[0] == queries[1]:
            continue
        rows, cols, virtual = local.rows(queries), slice(*keys), local.virtual_rows(queries)
        tile_grads = backward_tiles(
            collapse_pseudo_heads_backward(grad[:, rows], collapse, local.num_mixed_heads, local.P_q),
            local.pseudo_heads(q[:, rows], rows_q, local.P_q, cos, sin),
            local.pseudo_heads(k[:, cols], rows_k, local.P_k, cos, sin),
            local.pseudo_heads(v[:, cols], rows_v, local.P_k),
            virtual_out[:, virtual],
            lse[:, virtual],
            local.tiling(queries, keys, q.shape[0]),
            scale,
        )
        # A query sees several key segments. Mixing is linear, so the gradients of heads may be summed over segments.
        for tile_grad, x, matrix, P, where, rotary, grad_x, grad_rows in (
            (tile_grads[0], q, rows_q, local.P_q, rows, (cos, sin), grad_q, grad_rows_q),
            (tile_grads[1], k, rows_k, local.P_k, cols, (cos, sin), grad_k, grad_rows_k),
            (tile_grads[2], v, rows_v, local.P_k, cols, (None, None), grad_v, grad_rows_v),
        ):
            x_part, rows_part = local.pseudo_heads_backward(tile_grad, x[:, where], matrix, P, *rotary)
            grad_x[:, where] += x_part
            grad_rows += rows_part
    return tuple(g.to(t.dtype) for g, t in zip(grads, tensors, strict=True))


def _outputs(q: Tensor, rows_q: Tensor, P: int, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    B, Nq, _, D = q.shape
    virtual = (B, Nq * P, rows_q.shape[0] // P) if keep else (0, 0, 0)  # only the backward pass needs these
    lse = q.new_empty(virtual, dtype=wide(q.dtype))
    return q.new_empty(q.shape), q.new_empty((*virtual, D)), lse


@_forward.register_fake
def _(q: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(q, others[2], others[8], bool(others[-1]))


@_backward.register_fake
def _(grad: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in others[:7])


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    *tensors, causal, window, P_q, P_k, key_padding_mask, document_ids, cos, sin, scale, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:], key_padding_mask, document_ids, cos, sin)
    ctx.options, ctx.scale = (causal, window, P_q, P_k), scale  # type: ignore[attr-defined]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, key_padding_mask, document_ids, cos, sin = ctx.saved_tensors  # type: ignore[attr-defined]
    options, scale = ctx.options, ctx.scale  # type: ignore[attr-defined]
    grads = _backward(grad, *tensors, *options, key_padding_mask, document_ids, cos, sin, scale)
    return *grads, *([None] * (PACKED_LENGTH + 4))


_forward.register_autograd(_differentiate, setup_context=_save)
