"""Mixing over the head axis: Step 2 (pseudo-heads, alpha) and Step 5 (collapse, R) of Algorithm 1.

alpha applies one small matrix to the heads of every token. With its rows in (p, h) order, alpha @ x[n] already is the P
consecutive virtual tokens of token n. The interleaving of Step 3 therefore needs no transpose and no copy. A per-head R
weighs each pseudo-head by one number, which takes half the time of a product with a block-diagonal matrix. The number
of heads after mixing, H', may differ from the H projected heads; then R is full.
"""

import torch
from torch import Tensor

from iha.ops.rotary import rotate_by


def mixing_rows(alpha: Tensor) -> Tensor:
    """alpha (H, H', P) as the matrix (P*H', H) that maps heads to pseudo-heads."""
    H, mixed, P = alpha.shape
    return alpha.permute(2, 1, 0).reshape(P * mixed, H)


def collapse_rows(collapse: Tensor, num_pseudo_heads: int) -> Tensor:
    """R over all heads, (H, H'*P), as the matrix (H, P*H') that maps pseudo-heads to heads."""
    H, P = collapse.shape[0], num_pseudo_heads
    return collapse.view(H, -1, P).transpose(1, 2).reshape(H, -1)  # [h, (p, h')]


def mix(x: Tensor, alpha: Tensor, rotary: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Pseudo-heads, interleaved: x (B, N, H, D) and alpha (H, H', P) give (B, N*P, H', D).

    `rotary`, cos and sin of (P, D/2), rotates pseudo-head p by the p-th angle.
    """
    pseudo = combine_heads(mixing_rows(alpha), x).unflatten(2, (alpha.shape[2], -1))  # (B, N, P, H', D)
    return (pseudo if rotary is None else rotate_by(pseudo, *rotary)).flatten(1, 2)


def collapse_pseudo_heads(x: Tensor, collapse: Tensor, num_pseudo_heads: int) -> Tensor:
    """Back to one output per head: x (B, N*P, H', D) and R (H, P) or (H, H'*P) give (B, N, H, D)."""
    x = x.unflatten(1, (-1, num_pseudo_heads))  # (B, N, P, H', D)
    if not is_per_head(collapse, x.shape[3], num_pseudo_heads):
        return combine_heads(collapse_rows(collapse, num_pseudo_heads), x.flatten(2, 3))
    heads, weights = x.unbind(2), collapse.t().unsqueeze(-1).unbind(0)  # P times (B, N, H, D) and (H, 1)
    out = heads[0] * weights[0]
    for head, weight in zip(heads[1:], weights[1:], strict=True):
        out = torch.addcmul(out, head, weight)
    return out


def collapse_pseudo_heads_backward(
    grad: Tensor,  # (B, N, H, D), of the heads
    collapse: Tensor,
    num_mixed_heads: int,  # H'
    num_pseudo_heads: int,
) -> Tensor:  # (B, N*P, H', D), of the pseudo-heads
    if is_per_head(collapse, num_mixed_heads, num_pseudo_heads):
        pseudo = grad[:, :, None] * collapse.t()[:, :, None]  # (B, N, P, H, D)
    else:
        rows = collapse_rows(collapse, num_pseudo_heads)
        pseudo = combine_heads(rows.t(), grad).unflatten(2, (num_pseudo_heads, -1))
    return pseudo.flatten(1, 2)


def collapse_grad(grad: Tensor, x: Tensor, collapse: Tensor, num_pseudo_heads: int) -> Tensor:
    """The gradient of R, shaped like R, from grad (B, N, H, D) and the pseudo-heads x (B, N*P, H', D)."""
    x = x.unflatten(1, (-1, num_pseudo_heads))  # (B, N, P, H', D)
    if is_per_head(collapse, x.shape[3], num_pseudo_heads):
        return torch.linalg.vecdot(grad[:, :, None], x).sum(dim=(0, 1)).t()  # (H, P)
    rows = combine_heads_rows_grad(grad, x.flatten(2, 3))  # (H, P*H')
    H = collapse.shape[0]
    return rows.view(H, num_pseudo_heads, -1).transpose(1, 2).reshape(H, -1)


def pseudo_queries_as_heads(alpha_q: Tensor, collapse: Tensor) -> tuple[Tensor, Tensor]:
    """alpha_q (H, H', P) and R with every pseudo-query as a head: (H, H'*P, 1) and a full R, (H, H'*P)."""
    _, mixed, P = alpha_q.shape
    if is_per_head(collapse, mixed, P):
        collapse = torch.diag_embed(collapse.t()).permute(1, 2, 0).flatten(1)  # zero between different heads
    return alpha_q.flatten(1).unsqueeze(2), collapse


def is_per_head(collapse: Tensor, num_mixed_heads: int, num_pseudo_heads: int) -> bool:
    """Whether R is (H', P), which needs H = H', and not (H, H'*P). With one head both are the same."""
    return collapse.shape == (num_mixed_heads, num_pseudo_heads)


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
