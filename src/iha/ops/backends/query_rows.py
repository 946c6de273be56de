"""A formula over query rows, evaluated a block of rows at a time, forward and backward.

Mechanisms that no fused kernel computes (talking heads, multi-token, Strassen) are row-wise: an output row needs its
own logits and nothing of other rows' (or of a few rows before it, the halo). So only one block's logits need to exist.
Autograd would keep those of every block for the backward pass; here each block is computed again instead.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from iha.ops.masking import Masking
from iha.ops.precision import wide

_MAX_TILE_SCORES = 1 << 22  # B x H x queries x keys of one block: 16 MiB in float32


@dataclass(frozen=True)
class Rows:
    """One block: which query tokens, which key tokens they can reach, and which of those they see."""

    halo: int  # leading rows of `queries` that are there for the others only
    queries: tuple[int, int]  # tokens [from, to), the halo included
    keys: tuple[int, int]  # tokens [from, to)
    visible: Tensor  # (1 or B, queries, keys) bool


# (rows, q of these queries, keys and values in reach, the mechanism's weights) -> (B, queries - halo, heads, Dv)
Formula = Callable[[Rows, Tensor, Sequence[Tensor], Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class _Plan:
    formula: Formula
    masking: Masking
    chunk: int
    halo: int
    num_queries: int
    num_tokens: int
    num_keys: int  # how many of the tensors have one row a key token

    def blocks(self, device: torch.device) -> Iterator[Rows]:
        first, N = self.num_tokens - self.num_queries, self.num_tokens
        rule = self.masking.visibility
        back = N if rule.reach_back is None else rule.reach_back
        ahead = N if rule.reach_ahead is None else rule.reach_ahead
        for start in range(first, N, self.chunk):
            halo = min(self.halo, start - first)
            queries = (start - halo, min(start + self.chunk, N))
            keys = (max(0, queries[0] - back), min(N, queries[1] + ahead))
            yield Rows(halo, queries, keys, self.masking.tile(queries, keys, device))

    def slices(self, rows: Rows) -> tuple[slice, slice, slice]:
        """Into q with the halo, into the output without it, and into the keys."""
        first = self.num_tokens - self.num_queries
        start, stop = rows.queries[0] - first, rows.queries[1] - first
        return slice(start, stop), slice(start + rows.halo, stop), slice(*rows.keys)

    def evaluate(self, rows: Rows, q: Tensor, rest: Sequence[Tensor]) -> Tensor:
        # The formulas say themselves what is computed in which precision; backward would not see autocast anyway.
        with torch.autocast(q.device.type, enabled=False):
            return self.formula(rows, q, rest[: self.num_keys], rest[self.num_keys :])


def by_query_rows(
    formula: Formula,
    q: Tensor,  # (B, Nq, H, D), zeros where a token is padding
    keys: Sequence[Tensor],  # each (B, N, G, ...), zeros where a token is padding
    weights: Sequence[Tensor],  # the mechanism's own, whole in every block
    masking: Masking,
    *,
    chunk: int | None = None,  # queries in a block; None bounds a block's logits to 16 MiB
    halo: int = 0,
) -> Tensor:  # (B, Nq, heads, Dv)
    B, Nq, H, _ = q.shape
    N = keys[0].shape[1]
    visibility = masking.visibility.clipped(N)
    if chunk is None:
        reach = N if visibility.window is None else min(N, 2 * visibility.window)
        chunk = max(16, min(256, _MAX_TILE_SCORES // (B * H * reach)))
        if visibility.window is not None:  # a block of c queries reaches c + W keys: keep c below W, to waste little
            chunk = min(chunk, max(16, visibility.window))
    plan = _Plan(formula, masking.ruled_by(visibility), chunk, halo, Nq, N, len(keys))
    return _ByQueryRows.apply(plan, q, *keys, *weights)


class _ByQueryRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: _Plan, q: Tensor, *rest: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.plan = plan
        ctx.save_for_backward(q, *rest)
        out = None
        for rows in plan.blocks(q.device):
            q_rows, out_rows, key_rows = plan.slices(rows)
            tensors = [t[:, key_rows] if n < plan.num_keys else t for n, t in enumerate(rest)]
            block = plan.evaluate(rows, q[:, q_rows], tensors)
            if out is None:
                out = block.new_empty(q.shape[0], q.shape[1], *block.shape[2:])
            out[:, out_rows] = block
        assert out is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        plan: _Plan = ctx.plan
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[1:]
        # Sums over blocks in float32 at least: in bfloat16 every further block would round the sum again.
        sums = [torch.zeros_like(t, dtype=wide(t.dtype)) if w else None for t, w in zip(tensors, wanted, strict=True)]
        for rows in plan.blocks(grad.device):
            q_rows, out_rows, key_rows = plan.slices(rows)
            where: list[tuple[slice, ...]] = [(slice(None), q_rows), *[(slice(None), key_rows)] * plan.num_keys]
            where += [()] * (len(tensors) - len(where))  # the weights, whole
            parts = [t[w].detach() for t, w in zip(tensors, where, strict=True)]
            # The weights, too: they get a share from every block, and each would be rounded.
            parts[1 + plan.num_keys :] = [t.to(wide(t.dtype)) for t in parts[1 + plan.num_keys :]]
            learning = [part.requires_grad_() for part, w in zip(parts, wanted, strict=True) if w]
            with torch.enable_grad():
                block = plan.evaluate(rows, parts[0], parts[1:])
            grads = iter(torch.autograd.grad(block, learning, grad[:, out_rows]))
            for total, place in zip(sums, where, strict=True):
                if total is not None:
                    total[place] += next(grads)
            del block  # before the next one is computed, or two blocks would be alive
        return None, *(s if s is None else s.to(t.dtype) for s, t in zip(sums, tensors, strict=True))
