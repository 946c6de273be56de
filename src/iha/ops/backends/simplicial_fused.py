"""2-simplicial attention where every query sees every pair, by the fused kernel of ordinary attention.

Query i and first key j together act as one query row q[i] ⊙ k1[j] of ordinary attention over the second keys. The
rows of a query are then combined by a softmax over j of their log-sum-exps. The N² rows of D features are built for
one block of queries at a time; the N³ logits are never in memory. On CPU and with narrow heads this takes half the
time of the blocks in `simplicial.py`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from iha.ops.backends.kernels import attend_tile, attend_tile_backward, fused_on

_MAX_ROWS = 1 << 17  # B x H x queries x first keys of one block
_MAX_KEPT_ROWS = 1 << 21  # of the whole call, stored for the backward pass: 136 MiB
_WIDEST = 8  # head width; with wider heads the blocks of `simplicial.py` are as fast
_FILLED = 16  # features per row after padding: a width the kernel is fast on, and larger than any head width here


def fits(q: Tensor) -> bool:
    """Whether this is faster than `simplicial.py` for q (B, H, Nq, D) without a mask."""
    return q.dtype == torch.float32 and q.shape[-1] <= _WIDEST and fused_on(q)


class FusedSimplicial(torch.autograd.Function):
    """q (B, H, Nq, D), k1, k2, v1 and v2 (B, H, N, D) to (B, H, Nq, D)."""

    @staticmethod
    def forward(ctx, scale: float, q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        out, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=q.dtype)
        keep, kept = q.shape[:3].numel() * k1.shape[2] <= _MAX_KEPT_ROWS, []
        for mine in _blocks(q, k1):
            inner, row_lse = _attend_rows(_rows(q[:, :, mine], k1), k2, v2, scale)
            out[:, :, mine] = (row_lse.softmax(dim=-1)[..., None] * inner * v1[:, :, None]).sum(dim=3)
            lse[:, :, mine] = row_lse.logsumexp(dim=-1)
            kept += [inner, row_lse] if keep else []  # otherwise recomputed in the backward pass
        ctx.scale = scale
        ctx.save_for_backward(q, k1, k2, v1, v2, out, lse, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        q, k1, k2, v1, v2, out, lse, *kept = ctx.saved_tensors
        D, wide_k2, wide_v2 = q.shape[-1], _filled(k2), _filled(v2)
        dq, dk1, dk2, dv1, dv2 = (torch.zeros_like(t) for t in (q, k1, k2, v1, v2))
        delta = (grad * out).sum(dim=-1)  # (B, H, Nq)
        for n, mine in enumerate(_blocks(q, k1)):
            rows = _rows(q[:, :, mine], k1)  # (B, H, queries, N, 16)
            inner, row_lse = kept[2 * n : 2 * n + 2] if kept else _attend_rows(rows, k2, v2, ctx.scale)
            g = grad[:, :, mine, None]  # (B, H, queries, 1, D)
            dv1 += (g * row_lse.softmax(dim=-1)[..., None] * inner).sum(dim=2)
            # The kernel subtracts the dot product of a row's gradient and output. Here it must subtract the query's
            # delta instead, so feature D carries it: that feature is padding, and zero in v2.
            row_grad, row_out = torch.zeros_like(rows), torch.zeros_like(rows)
            row_grad[..., :D], row_grad[..., D] = g * v1[:, :, None], 1
            row_out[..., D] = delta[:, :, mine, None]
            row_grad, row_out, flat_rows = (t.flatten(2, 3) for t in (row_grad, row_out, rows))
            flat_lse = lse[:, :, mine, None].expand_as(row_lse).flatten(2)
            d_rows, d_k2, d_v2 = attend_tile_backward(
                row_grad, flat_rows, wide_k2, wide_v2, row_out, flat_lse, None, ctx.scale
            )
            d_rows = d_rows[..., :D].unflatten(2, rows.shape[2:4])  # (B, H, queries, N, D)
            dq[:, :, mine] = (d_rows * k1[:, :, None]).sum(dim=3)
            dk1 += (d_rows * q[:, :, mine, None]).sum(dim=2)
            dk2 += d_k2[..., :D]
            dv2 += d_v2[..., :D]
        return None, dq, dk1, dk2, dv1, dv2


def _filled(x: Tensor) -> Tensor:
    """Pad x (..., D) with zeros to 16 features, whatever `sdpa_kernel` has set when the backward pass runs."""
    return F.pad(x, (0, _FILLED - x.shape[-1]))


def _rows(q: Tensor, k1: Tensor) -> Tensor:
    """(B, H, queries, N, 16): the product of every query with every first key, padded."""
    return _filled(q[:, :, :, None] * k1[:, :, None])


def _attend_rows(rows: Tensor, k2: Tensor, v2: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Every row's attention to the second keys (B, H, queries, N, D) and its log-sum-exp (B, H, queries, N)."""
    inner, row_lse = attend_tile(rows.flatten(2, 3), _filled(k2), _filled(v2), None, scale)
    return inner[..., : k2.shape[-1]].unflatten(2, rows.shape[2:4]), row_lse.unflatten(2, rows.shape[2:4])


def _blocks(q: Tensor, k1: Tensor) -> list[slice]:
    B, H, Nq, _ = q.shape
    chunk = max(1, _MAX_ROWS // (B * H * k1.shape[2]))
    return [slice(start, start + chunk) for start in range(0, Nq, chunk)]
