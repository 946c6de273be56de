"""A formula over query rows, evaluated one block of rows at a time, forward and backward.

Mechanisms that no fused kernel computes (talking heads, multi-token, Strassen) are row-wise: an output row needs its
own logits and those of at most a few rows before it, the halo. So only the logits of one block need to be in memory.
Autograd would keep those of every block for the backward pass; here the backward pass recomputes each block instead.

The same code runs in three ways. Eager mode uses an autograd function. torch.compile uses a custom operator, so that
the compiler does not unroll the blocks. Forward-mode differentiation and export evaluate the formula on all rows at
once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from iha.ops.backends.case import in_forward_mode, is_exporting
from iha.ops.masking import PACKED_LENGTH, PACKED_SCHEMA, Masking
from iha.ops.precision import wide

_MAX_TILE_SCORES = 1 << 22  # B x H x queries x keys of one block: 16 MiB in float32


@dataclass(frozen=True)
class Rows:
    """One block: its query tokens, the key tokens they can reach, and the mask between them."""

    halo: int  # number of leading rows of `queries` that have no output; later rows need their logits
    queries: tuple[int, int]  # tokens [from, to), the halo included
    keys: tuple[int, int]  # tokens [from, to)
    visible: Tensor  # (1 or B, queries, keys) bool
    document_ids: Tensor | None  # (B, N), of the whole sequence


# (rows, q of these queries, keys and values in reach, the mechanism's weights, scale) -> (B, queries - halo, H, Dv).
# Dv is the width of the last tensor among the keys and values.
Formula = Callable[[Rows, Tensor, Sequence[Tensor], Sequence[Tensor], float], Tensor]

_FORMULAS: dict[str, Formula] = {}  # by name, because a custom operator cannot take a function as argument


def row_formula(name: str) -> Callable[[Formula], Formula]:
    """Register a formula for `by_query_rows` under this name."""

    def known(formula: Formula) -> Formula:
        _FORMULAS[name] = formula
        return formula

    return known


@dataclass(frozen=True)
class _Plan:
    formula: Formula
    masking: Masking
    scale: float
    chunk: int
    halo: int
    num_queries: int
    num_tokens: int
    num_keys: int  # how many of the tensors have one row per key token

    def blocks(self, device: torch.device) -> Iterator[Rows]:
        first, N = self.num_tokens - self.num_queries, self.num_tokens
        rule = self.masking.visibility
        back = N if rule.reach_back is None else rule.reach_back
        ahead = N if rule.reach_ahead is None else rule.reach_ahead
        for start in range(first, N, self.chunk):
            halo = min(self.halo, start - first)
            queries = (start - halo, min(start + self.chunk, N))
            yield self.rows(halo, queries, (max(0, queries[0] - back), min(N, queries[1] + ahead)), device)

    def rows(self, halo: int, queries: tuple[int, int], keys: tuple[int, int], device: torch.device) -> Rows:
        return Rows(halo, queries, keys, self.masking.tile(queries, keys, device), self.masking.document_ids)

    def slices(self, rows: Rows) -> tuple[slice, slice, slice]:
        """Slices of a block: into q (with the halo), into the output (without it) and into the keys."""
        first = self.num_tokens - self.num_queries
        start, stop = rows.queries[0] - first, rows.queries[1] - first
        return slice(start, stop), slice(start + rows.halo, stop), slice(*rows.keys)

    def evaluate(self, rows: Rows, q: Tensor, rest: Sequence[Tensor]) -> Tensor:
        # Formulas choose their precision themselves. The backward pass runs outside autocast, so forward must too.
        with torch.autocast(q.device.type, enabled=False):
            return self.formula(rows, q, rest[: self.num_keys], rest[self.num_keys :], self.scale)

    def forward(self, q: Tensor, rest: Sequence[Tensor]) -> Tensor:
        out = None
        for rows in self.blocks(q.device):
            q_rows, out_rows, key_rows = self.slices(rows)
            tensors = [t[:, key_rows] if n < self.num_keys else t for n, t in enumerate(rest)]
            block = self.evaluate(rows, q[:, q_rows], tensors)
            if out is None:
                out = block.new_empty(q.shape[0], q.shape[1], *block.shape[2:])
            out[:, out_rows] = block
        assert out is not None
        return out

    def backward(self, grad: Tensor, tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Gradients of q, the keys and the weights; None where `wanted` is False."""
        # Sum over blocks in at least float32: in bfloat16 every added block would round the sum again.
        sums = [torch.zeros_like(t, dtype=wide(t.dtype)) if w else None for t, w in zip(tensors, wanted, strict=True)]
        for rows in self.blocks(grad.device):
            q_rows, out_rows, key_rows = self.slices(rows)
            where: list[tuple[slice, ...]] = [(slice(None), q_rows), *[(slice(None), key_rows)] * self.num_keys]
            where += [()] * (len(tensors) - len(where))  # the weights, whole
            parts = [t[w].detach() for t, w in zip(tensors, where, strict=True)]
            # Convert the weights too: every block adds to their gradients, and would round each sum.
            parts[1 + self.num_keys :] = [t.to(wide(t.dtype)) for t in parts[1 + self.num_keys :]]
            learning = [part.requires_grad_() for part, w in zip(parts, wanted, strict=True) if w]
            with torch.enable_grad():
                block = self.evaluate(rows, parts[0], parts[1:])
            grads = iter(torch.autograd.grad(block, learning, grad[:, out_rows]))
            for total, place in zip(sums, where, strict=True):
                if total is not None:
                    total[place] += next(grads)
            del block  # free it before the next block is computed: two would double the memory
        return [s if s is None else s.to(t.dtype) for s, t in zip(sums, tensors, strict=True)]


def by_query_rows(
    formula: str,  # the name of a `row_formula`
    q: Tensor,  # (B, Nq, H, D), zeros where a token is padding
    keys: Sequence[Tensor],  # each (B, N, G, ...), zeros where a token is padding
    weights: Sequence[Tensor],  # the mechanism's parameters, passed whole to every block
    masking: Masking,
    scale: float,
    *,
    chunk: int | None = None,  # queries per block; None limits a block's logits to 16 MiB
    halo: int = 0,
) -> Tensor:  # (B, Nq, H, Dv)
    Nq, N = q.shape[1], keys[0].shape[1]
    if in_forward_mode() or is_exporting():
        plan = _Plan(_FORMULAS[formula], masking, scale, N, halo, Nq, N, len(keys))
        return plan.evaluate(plan.rows(0, (N - Nq, N), (0, N), q.device), q, (*keys, *weights))
    if torch.compiler.is_compiling():
        return _operator(formula, q, list(keys), list(weights), *masking.pack(), scale, chunk, halo)
    return _ByQueryRows.apply(_plan(formula, q, keys, masking, scale, chunk, halo), q, *keys, *weights)


def _plan(
    formula: str, q: Tensor, keys: Sequence[Tensor], masking: Masking, scale: float, chunk: int | None, halo: int
) -> _Plan:
    B, Nq, H, _ = q.shape
    N = keys[0].shape[1]
    visibility = masking.visibility.clipped(N)
    if chunk is None:
        reach = N if visibility.window is None else min(N, 2 * visibility.window)
        chunk = max(16, min(128, _MAX_TILE_SCORES // (B * H * reach)))
        if visibility.window is not None:  # c queries reach c + W keys: c <= W keeps the waste small
            chunk = min(chunk, max(16, visibility.window))
    return _Plan(_FORMULAS[formula], masking.ruled_by(visibility), scale, chunk, halo, Nq, N, len(keys))


class _ByQueryRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: _Plan, q: Tensor, *rest: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.plan = plan
        ctx.save_for_backward(q, *rest)
        return plan.forward(q, rest)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        return None, *ctx.plan.backward(grad, ctx.saved_tensors, ctx.needs_input_grad[1:])


_ARGUMENTS = (
    f"str formula, Tensor q, Tensor[] keys, Tensor[] weights, {PACKED_SCHEMA}, float scale, int? chunk, int halo"
)


@torch.library.custom_op("iha::query_rows", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
def _operator(formula: str, q: Tensor, keys: Sequence[Tensor], weights: Sequence[Tensor], *options: Any) -> Tensor:
    return _unpacked(formula, q, keys, options).forward(q, (*keys, *weights))


@torch.library.custom_op("iha::query_rows_backward", mutates_args=(), schema=f"(Tensor grad, {_ARGUMENTS}) -> Tensor[]")
def _operator_backward(
    grad: Tensor, formula: str, q: Tensor, keys: Sequence[Tensor], weights: Sequence[Tensor], *options: Any
) -> list[Tensor]:
    plan, tensors = _unpacked(formula, q, keys, options), (q, *keys, *weights)
    with _autograd_inside_an_operator():
        grads = plan.backward(grad, tensors, [True] * len(tensors))
    return [g for g in grads if g is not None]


def _unpacked(formula: str, q: Tensor, keys: Sequence[Tensor], options: Sequence[Any]) -> _Plan:
    """The plan of an operator's arguments."""
    packed, (scale, chunk, halo) = options[:PACKED_LENGTH], options[PACKED_LENGTH:]
    return _plan(formula, q, keys, Masking.unpack(*packed), scale, chunk, halo)


@contextmanager
def _autograd_inside_an_operator() -> Iterator[None]:
    """Enable autograd, which torch disables inside a custom operator: the backward of a block needs it."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    autograd = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality)
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with torch._C._ForceDispatchKeyGuard(include, exclude - autograd - views):
        yield


@_operator.register_fake
def _(formula: str, q: Tensor, keys: Sequence[Tensor], *_: object) -> Tensor:
    return q.new_empty(*q.shape[:3], keys[-1].shape[-1])


@_operator_backward.register_fake
def _(grad: Tensor, formula: str, q: Tensor, keys: Sequence[Tensor], weights: Sequence[Tensor], *_: object) -> list:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, *keys, *weights)]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: Tensor) -> None:
    formula, q, keys, weights, causal, window, P_q, P_k, key_padding_mask, document_ids, *numbers = inputs
    ctx.save_for_backward(q, *keys, *weights, key_padding_mask, document_ids)
    ctx.formula, ctx.num_keys, ctx.rule = formula, len(keys), (causal, window, P_q, P_k)  # type: ignore[attr-defined]
    ctx.numbers = numbers  # type: ignore[attr-defined]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple:
    q, *rest, key_padding_mask, document_ids = ctx.saved_tensors  # type: ignore[attr-defined]
    num_keys: int = ctx.num_keys  # type: ignore[attr-defined]
    keys, weights = rest[:num_keys], rest[num_keys:]
    masks = (*ctx.rule, key_padding_mask, document_ids)  # type: ignore[attr-defined]
    grad_q, *grads = _operator_backward(grad, ctx.formula, q, keys, weights, *masks, *ctx.numbers)  # type: ignore[attr-defined]
    return None, grad_q, grads[:num_keys], grads[num_keys:], *[None] * (PACKED_LENGTH + 3)


_operator.register_autograd(_differentiate, setup_context=_save)
