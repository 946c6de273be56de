"""Multi-token attention (Golovneva et al. 2025, arXiv 2504.00927): convolutions over queries, keys and heads.

    Â      = q kᵀ · scale, 0 where a query does not see a key         per head
    L[i,j] = Σ_{a, t} key_query_kernel[h, a, t] Â[i - a, j + t - (ck-1)//2]      a < cq rows back, ck keys around
    W      = softmax over the visible keys of L
    U[g]   = Σ_h W[h] head_kernel[group, h, g]                        heads of a group of ch
    out    = U v, then a norm per head with (1 - lambda_init)

Masking twice keeps it causal. Masked logits are 0 before the convolution, so that they do not enter visible ones, and
-inf after it. The sum over a also leaves out rows of other documents. Their logits are visible within their own
document, and would leak into the first cq - 1 rows of the next one. Rows of padding are zero.

The fast form works in blocks of queries with a halo of cq - 1 rows: memory O(N · chunk), forward and backward.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops import inputs
from iha.ops.backends.query_rows import Rows, by_query_rows, row_formula
from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.visibility import Causality


def multi_token_attention(
    q: Tensor,  # (B, N, H, D); all tokens, because a row needs the queries before it
    k: Tensor,  # (B, N, G, D)
    v: Tensor,  # (B, N, G, D)
    key_query_kernel: Tensor,  # (H, cq, ck), [head, rows back, key from left to right]
    head_kernel: Tensor,  # (H/ch, ch, ch), [group, source head, head]
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    chunk: int | None = None,  # queries per block; None limits a block's logits to 16 MiB
) -> Tensor:  # (B, N, H, D), before the norm
    """Multi-token attention in blocks of queries."""
    _check_kernels(q, k, key_query_kernel, head_kernel)
    inputs.check_chunk(chunk)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    cq = key_query_kernel.shape[1]
    weights = (key_query_kernel, head_kernel)
    return by_query_rows("multi_token", q, (k, v), weights, masking, factor, chunk=chunk, halo=cq - 1)


@row_formula("multi_token")
def _rows(rows: Rows, q: Tensor, keys: Sequence[Tensor], kernels: Sequence[Tensor], scale: float) -> Tensor:
    H, cq, ck = kernels[0].shape
    k, v = (inputs.repeat_heads(t, H).transpose(1, 2) for t in keys)  # (B, H, keys, D)
    hidden = ~rows.visible[:, None]  # (1 or B, 1, halo + queries, keys)
    logits = (scale * (q.transpose(1, 2) @ k.mT)).to(wide(q.dtype)).masked_fill(hidden, 0)
    # Pad with zeros: rows before the first token, keys before the first and after the last.
    logits = F.pad(logits, ((ck - 1) // 2, ck // 2, cq - 1 - rows.halo, 0))
    kernel, heads = (t.to(logits.dtype) for t in kernels)
    count = rows.queries[1] - rows.queries[0] - rows.halo
    mixed = torch.zeros((), dtype=logits.dtype, device=q.device)
    for back in range(cq):
        source = logits[:, :, cq - 1 - back : cq - 1 - back + count]  # the rows `back` before these
        term = F.conv2d(source, kernel[:, None, back : back + 1], groups=H)  # (B, H, queries, keys)
        if rows.document_ids is not None:
            same = _same_document(rows.queries[1] - count, rows.queries[1], back, rows.document_ids)
            term = term * same[:, None, :, None]
        mixed = mixed + term
    weights = mixed.masked_fill(hidden[:, :, rows.halo :], -torch.inf).softmax(dim=-1)
    weights = _mix_groups(weights, heads).to(v.dtype)
    return (weights @ v).transpose(1, 2)  # (B, queries, H, D)


def multi_token_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_query_kernel: Tensor,
    head_kernel: Tensor,
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The definition: every tap of the kernel multiplies a shifted copy of the masked logits."""
    _check_kernels(q, k, key_query_kernel, head_kernel)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    N = k.shape[1]
    H, cq, ck = key_query_kernel.shape
    k, v = inputs.repeat_heads(k, H), inputs.repeat_heads(v, H)
    visible = masking.tile((0, N), (0, N), q.device)
    logits = factor * torch.einsum("bihd,bjhd->bhij", q, k)  # (B, H, N, N)
    logits = logits.masked_fill(~visible[:, None], 0)
    mixed = torch.zeros_like(logits)
    token = torch.arange(N, device=q.device)
    for back in range(cq):
        for tap in range(ck):
            i, j = token - back, token + tap - (ck - 1) // 2
            inside = ((i >= 0)[:, None] & ((j >= 0) & (j < N))[None])[None]  # (1, N, N)
            if document_ids is not None:
                inside = inside & _same_document(0, N, back, document_ids)[:, :, None]
            shifted = logits[:, :, i.clamp(0)][..., j.clamp(0, N - 1)] * inside[:, None]
            mixed = mixed + key_query_kernel[:, back, tap, None, None] * shifted
    weights = mixed.masked_fill(~visible[:, None], -torch.inf).softmax(dim=-1)
    ch = head_kernel.shape[1]
    weights = torch.einsum("bnhij,nhg->bngij", weights.unflatten(1, (H // ch, ch)), head_kernel).flatten(1, 2)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def group_norm(x: Tensor, weight: Tensor, lambda_init: float, eps: float = 1e-5) -> Tensor:
    """RMS norm per head of x (B, N, H, D), times (1 - lambda_init), the depth scaling of differential attention."""
    dtype = wide(x.dtype)
    return ((1 - lambda_init) * F.rms_norm(x.to(dtype), x.shape[-1:], weight.to(dtype), eps)).to(x.dtype)


def _mix_groups(weights: Tensor, head_kernel: Tensor) -> Tensor:
    """Mix weights (B, H, queries, keys) within groups of ch heads."""
    groups, ch, _ = head_kernel.shape
    grouped = weights.flatten(2).unflatten(1, (groups, ch))  # (B, H/ch, ch, queries*keys)
    return (head_kernel.mT @ grouped).flatten(1, 2).unflatten(2, weights.shape[2:])


def _same_document(start: int, stop: int, back: int, document_ids: Tensor) -> Tensor:
    """For tokens start to stop, whether the token `back` before is in the same document: (B, stop - start) bool."""
    token = torch.arange(start, stop, device=document_ids.device)
    # Rows before the first token are zeros, so the answer for them does not matter.
    return document_ids[:, (token - back).clamp(0)] == document_ids[:, token]


def _check_kernels(q: Tensor, k: Tensor, key_query_kernel: Tensor, head_kernel: Tensor) -> None:
    H = q.shape[2]
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"a row needs the queries before it: q must hold all {k.shape[1]} tokens, got {q.shape[1]}")
    if key_query_kernel.dim() != 3 or key_query_kernel.shape[0] != H or 0 in key_query_kernel.shape:
        raise ValueError(f"key_query_kernel must be (H, cq, ck) with H = {H}, got {tuple(key_query_kernel.shape)}")
    groups, *sizes = head_kernel.shape
    if len(sizes) != 2 or sizes[0] != sizes[1] or groups * sizes[0] != H:
        raise ValueError(f"head_kernel must be (H/ch, ch, ch) with H = {H}, got {tuple(head_kernel.shape)}")
