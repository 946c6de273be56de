"""Mixing over the head axis: Step 2 (pseudo-heads, alpha) and Step 5 (collapse, R) of Algorithm 1."""

import torch
from torch import Tensor


def mix(x: Tensor, alpha: Tensor) -> Tensor:
    """Pseudo-heads, interleaved: x (B, N, M, D) and alpha (M, H, P) give (B, N*P, H, D).

    With alpha's rows in (p, h) order, alpha @ x[n] *is* the P consecutive virtual tokens of token n: the
    interleaving of Step 3 costs no transpose and no copy.
    """
    M, H, P = alpha.shape
    B, N, _, D = x.shape
    rows = alpha.permute(2, 1, 0).reshape(P * H, M)
    return _combine_heads(rows, x).view(B, N * P, H, D)


def collapse_pseudo_heads(x: Tensor, collapse: Tensor, num_pseudo_heads: int) -> Tensor:
    """Back to one output per head: x (B, N*P, H, D) and R (H, P) or (H, H*P) give (B, N, H, D)."""
    B, NP, H, D = x.shape
    P = num_pseudo_heads
    if collapse.shape == (H, H * P):
        rows = collapse.view(H, H, P).transpose(1, 2).reshape(H, P * H)  # [h, (p, h')]
    else:
        # A per-head R is the block-diagonal case. The extra zeros cost less than a strided reduction would.
        rows = torch.diag_embed(collapse.t()).transpose(0, 1).reshape(H, P * H)  # [h, (p, h')], zero off h = h'
    return _combine_heads(rows, x.view(B, NP // P, P * H, D))


def _combine_heads(rows: Tensor, x: Tensor) -> Tensor:
    """rows (A, M) @ x (B, N, M, D) -> (B, N, A, D), one small product per token.

    An explicit bmm with `rows` repeated by a zero stride: on CPU 2 to 8 times faster than matmul's own
    broadcasting or einsum, forward and backward (docs/lab-notes.md).
    """
    B, N, M, D = x.shape
    out = torch.bmm(rows.expand(B * N, *rows.shape), x.reshape(B * N, M, D))
    return out.view(B, N, rows.shape[0], D)
