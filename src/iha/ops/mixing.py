"""Mixing over the head axis: Step 2 (pseudo-heads, alpha) and Step 5 (collapse, R) of Algorithm 1.

Both apply one small matrix to the heads of every token. With the rows of alpha in (p, h) order, alpha @ x[n] already
is the P consecutive virtual tokens of token n. The interleaving of Step 3 therefore needs no transpose and no copy.
"""

import torch
from torch import Tensor

from iha.ops.rotary import rotate_by


def mixing_rows(alpha: Tensor) -> Tensor:
    """alpha (M, H, P) as the matrix (P*H, M) that maps heads to pseudo-heads."""
    M, H, P = alpha.shape
    return alpha.permute(2, 1, 0).reshape(P * H, M)


def collapse_rows(collapse: Tensor, num_pseudo_heads: int) -> Tensor:
    """R, (H, P) or (H, H*P), as the matrix (H, P*H) that maps pseudo-heads to heads."""
    H, P = collapse.shape[0], num_pseudo_heads
    if collapse.shape == (H, H * P):
        return collapse.view(H, H, P).transpose(1, 2).reshape(H, P * H)  # [h, (p, h')]
    # A per-head R is the block-diagonal case. The extra zeros cost less than a strided reduction would.
    return torch.diag_embed(collapse.t()).transpose(0, 1).reshape(H, P * H)  # [h, (p, h')], zero off h = h'


def mix(x: Tensor, alpha: Tensor, rotary: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Pseudo-heads, interleaved: x (B, N, M, D) and alpha (M, H, P) give (B, N*P, H, D).

    `rotary`, cos and sin of (P, D/2), rotates pseudo-head p by the p-th angle.
    """
    pseudo = combine_heads(mixing_rows(alpha), x).unflatten(2, (alpha.shape[2], -1))  # (B, N, P, H, D)
    return (pseudo if rotary is None else rotate_by(pseudo, *rotary)).flatten(1, 2)


def collapse_pseudo_heads(x: Tensor, collapse: Tensor, num_pseudo_heads: int) -> Tensor:
    """Back to one output per head: x (B, N*P, H, D) and R (H, P) or (H, H*P) give (B, N, H, D)."""
    x = x.unflatten(1, (-1, num_pseudo_heads)).flatten(2, 3)  # (B, N, P*H, D)
    return combine_heads(collapse_rows(collapse, num_pseudo_heads), x)


def combine_heads(rows: Tensor, x: Tensor) -> Tensor:
    """rows (A, M) @ x (B, N, M, D) -> (B, N, A, D), one small product per token.

    An explicit bmm with `rows` repeated by a zero stride. Forward and backward together are 1.6 to 6 times faster on
    CPU than matmul's own broadcasting or einsum (benchmarks/mixing.py, docs/lab-notes.md).
    """
    B, N, M, D = x.shape
    out = torch.bmm(rows.expand(B * N, *rows.shape), x.reshape(B * N, M, D))
    return out.view(B, N, rows.shape[0], D)


def combine_heads_rows_grad(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient (A, M) of `rows` in `combine_heads`, from grad (B, N, A, D) and x (B, N, M, D)."""
    return torch.bmm(grad.flatten(0, 1), x.flatten(0, 1).mT).sum(dim=0)
