"""Talking-heads attention (Shazeer et al. 2020, arXiv 2003.02436): heads are mixed before and after the softmax.

    J[h]   = q[h] k[h]ᵀ · scale                      logits of each head
    L[g]   = Σ_h J[h] · mix_logits[h, g]             mixed logits
    W[g]   = softmax over the visible keys of L[g]
    U[f]   = Σ_g W[g] · mix_weights[g, f]            mixed weights
    out[f] = U[f] v[f]

Every row needs the logits of all heads at once, so no flash kernel can compute it. The fast form here works in blocks
of queries: memory O(N · chunk) forward and backward, at the cost of computing each block twice.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from iha.ops import inputs
from iha.ops.backends.query_rows import Rows, by_query_rows, row_formula
from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.visibility import Causality


def talking_heads_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N, G, D)
    v: Tensor,  # (B, N, G, D)
    mix_logits: Tensor,  # (H, H), [source head, head]
    mix_weights: Tensor,  # (H, H), [source head, head]
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    chunk: int | None = None,  # queries per block; None limits a block's logits to 16 MiB
) -> Tensor:  # (B, Nq, H, D)
    """Talking-heads attention in blocks of queries."""
    _check_mixes(q.shape[2], mix_logits, mix_weights)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    inputs.check_chunk(chunk)
    return by_query_rows("talking_heads", q, (k, v), (mix_logits, mix_weights), masking, factor, chunk=chunk)


@row_formula("talking_heads")
def _rows(rows: Rows, q: Tensor, keys: Sequence[Tensor], mixes: Sequence[Tensor], scale: float) -> Tensor:
    k, v = (inputs.repeat_heads(t, q.shape[2]).transpose(1, 2) for t in keys)  # (B, H, keys, D)
    logits = (scale * (q.transpose(1, 2) @ k.mT)).to(wide(q.dtype))  # (B, H, queries, keys)
    logits = _mix_heads(logits, mixes[0]).masked_fill(~rows.visible[:, None], -torch.inf)
    weights = _mix_heads(logits.softmax(dim=-1), mixes[1])
    return (weights.to(v.dtype) @ v).transpose(1, 2)  # (B, queries, H, D)


def talking_heads_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mix_logits: Tensor,
    mix_weights: Tensor,
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The definition, with all logits in memory."""
    _check_mixes(q.shape[2], mix_logits, mix_weights)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    Nq, N, H = q.shape[1], k.shape[1], q.shape[2]
    k, v = inputs.repeat_heads(k, H), inputs.repeat_heads(v, H)
    visible = masking.tile((N - Nq, N), (0, N), q.device)  # (1 or B, Nq, N)
    logits = factor * torch.einsum("bihd,bjhd->bhij", q, k)  # (B, H, Nq, N)
    logits = torch.einsum("bhij,hg->bgij", logits, mix_logits)
    weights = logits.masked_fill(~visible[:, None], -torch.inf).softmax(dim=-1)
    weights = torch.einsum("bgij,gf->bfij", weights, mix_weights)
    return torch.einsum("bfij,bjfd->bifd", weights, v)


def _mix_heads(x: Tensor, mix: Tensor) -> Tensor:
    """x (B, M, queries, keys) and mix (M, H) give (B, H, queries, keys), as one matrix product per sequence.

    With mix expanded: for a matrix times a batch `matmul` would transpose the whole batch first.
    """
    expanded = mix.t().to(x.dtype).expand(x.shape[0], -1, -1)  # (B, H, M)
    return torch.bmm(expanded, x.flatten(2)).unflatten(2, x.shape[2:])


def _check_mixes(H: int, mix_logits: Tensor, mix_weights: Tensor) -> None:
    for name, mix in (("mix_logits", mix_logits), ("mix_weights", mix_weights)):
        if mix.shape != (H, H):
            raise ValueError(f"{name} must be (H, H) = ({H}, {H}), got {tuple(mix.shape)}")
