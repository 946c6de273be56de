"""Strassen attention (Kozachinskiy et al. 2025, arXiv 2501.19215): pairs of tokens, scored by three dot products.

    A[i, j, k] = softmax over the visible pairs (j, k) of scale · (q[i]·k1[j] + k1[j]·k2[k] + k2[k]·q[i])
    out[i]     = Σ_{j, k} A[i, j, k] (v1[j] ⊙ v2[k])

The exponential of the three-term sum is a product of three factors, X[i, j] Y[j, k] Z[i, k]. So feature d of the sum
over pairs is the diagonal of X diag(v1[:, d]) Y diag(v2[:, d]) Zᵀ. This takes D + 1 products of N×N matrices (one for
the normaliser) in place of N³ exponentials: sub-cubic with fast matrix multiplication, and O(N²) memory in any case.

Maxima are subtracted from the exponents so that each factor is at most 1. The maximum of Y's row j is added to X's
column j. Then the maxima of row i of X and of Z are subtracted; they cancel in the softmax. Underflow loses less than
N² times the smallest positive number. A row whose normaliser is not far above that bound is computed by the definition
instead. In float32 this needs logits about 40 apart.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from iha.ops import inputs
from iha.ops.backends.query_rows import Rows, by_query_rows, row_formula
from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.visibility import Causality

_MAX_BLOCK = 1 << 22  # B x H x queries x (D + 1) x keys of one block


def strassen_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k1: Tensor,  # (B, N, G, D)
    k2: Tensor,  # (B, N, G, D)
    v1: Tensor,  # (B, N, G, D)
    v2: Tensor,  # (B, N, G, D)
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    chunk: int | None = None,  # queries per block
) -> Tensor:  # (B, Nq, H, D)
    """Strassen attention by matrix products, in blocks of queries."""
    inputs.check_chunk(chunk)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, keys = inputs.prepare(
        q, {"k1": k1, "k2": k2, "v1": v1, "v2": v2}, ("k1", "k2"), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    B, _, H, D = q.shape
    if chunk is None:
        chunk = max(1, min(64, _MAX_BLOCK // (B * H * (D + 1) * k1.shape[1])))
    return by_query_rows("strassen", q, keys, (), masking, factor, chunk=chunk)


@row_formula("strassen")
def _rows(rows: Rows, q: Tensor, keys: Sequence[Tensor], _: Sequence[Tensor], scale: float) -> Tensor:
    H, dtype = q.shape[2], wide(q.dtype)
    f, g, h, v, w = (inputs.repeat_heads(t, H).transpose(1, 2).to(dtype) for t in (q, *keys))  # (B, H, ., D)
    hidden = ~rows.visible[:, None]  # (1 or B, 1, queries, keys)
    return _by_products(f, g, h, v, w, hidden, scale).transpose(1, 2).to(q.dtype)


def strassen_attention_reference(
    q: Tensor,
    k1: Tensor,
    k2: Tensor,
    v1: Tensor,
    v2: Tensor,
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The definition, with all N³ logits in memory: for short sequences."""
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, keys = inputs.prepare(
        q, {"k1": k1, "k2": k2, "v1": v1, "v2": v2}, ("k1", "k2"), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    Nq, N = q.shape[1], k1.shape[1]
    k1, k2, v1, v2 = (inputs.repeat_heads(t, q.shape[2]) for t in keys)
    visible = masking.tile((N - Nq, N), (0, N), q.device)  # (1 or B, Nq, N)
    x = torch.einsum("bihd,bjhd->bhij", q, k1)[:, :, :, :, None]
    y = torch.einsum("bjhd,bkhd->bhjk", k1, k2)[:, :, None, :, :]
    z = torch.einsum("bihd,bkhd->bhik", q, k2)[:, :, :, None, :]
    hidden = ~(visible[:, None, :, :, None] & visible[:, None, :, None, :])  # (1 or B, 1, Nq, N, N)
    logits = (factor * (x + y + z)).masked_fill(hidden, -torch.inf)
    weights = logits.flatten(3).softmax(dim=-1).view_as(logits)  # (B, H, Nq, N, N)
    return torch.einsum("bhijk,bjhd,bkhd->bihd", weights, v1, v2)


def _by_products(
    q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor, hidden: Tensor, scale: float
) -> Tensor:  # (B, H, queries, D)
    x = (scale * (q @ k1.mT)).masked_fill(hidden, -torch.inf)  # (B, H, queries, keys)
    z = (scale * (q @ k2.mT)).masked_fill(hidden, -torch.inf)
    y = scale * (k1 @ k2.mT)  # (B, H, keys, keys)
    highest = y.detach().amax(dim=-1)  # (B, H, keys), of each j
    x = x + highest[:, :, None]
    X = (x - x.detach().amax(dim=-1, keepdim=True)).exp()
    Y = (y - highest[..., None]).exp()
    Z = (z - z.detach().amax(dim=-1, keepdim=True)).exp()

    ones = torch.ones_like(v1[..., :1])
    v1_and_1, v2_and_1 = torch.cat((v1, ones), dim=-1), torch.cat((v2, ones), dim=-1)  # (B, H, keys, D + 1)
    left = X[:, :, :, None, :] * v1_and_1.mT[:, :, None]  # (B, H, queries, D + 1, keys): X diag(v1[:, d])
    product = (left.flatten(2, 3) @ Y).view_as(left)
    sums = torch.einsum("bhidk,bhik,bhkd->bhid", product, Z, v2_and_1)
    numerator, normaliser = sums[..., :-1], sums[..., -1:]

    limits = torch.finfo(q.dtype)
    doubtful = normaliser.detach() < y.shape[-1] ** 2 * limits.tiny / limits.eps**2  # (B, H, queries, 1)
    out = numerator / normaliser.masked_fill(doubtful, 1)
    if not doubtful.any():
        return out
    rows = doubtful.any(dim=0).any(dim=0).squeeze(-1).nonzero().flatten()
    exact = [checkpoint(_row, q[:, :, i], k1, k2, v1, v2, hidden[:, :, i], scale, use_reentrant=False) for i in rows]
    return torch.where(doubtful, out.index_copy(2, rows, torch.stack(exact, dim=2)), out)


def _row(q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor, hidden: Tensor, scale: float) -> Tensor:
    """One query by the definition: q (B, H, D), the other tensors as in `_by_products`, to (B, H, D)."""
    x = (scale * torch.einsum("bhd,bhjd->bhj", q, k1)).masked_fill(hidden, -torch.inf)
    z = (scale * torch.einsum("bhd,bhkd->bhk", q, k2)).masked_fill(hidden, -torch.inf)
    logits = x[..., None] + z[..., None, :] + scale * (k1 @ k2.mT)  # (B, H, keys, keys)
    weights = logits.flatten(2).softmax(dim=-1).view_as(logits)
    return torch.einsum("bhjk,bhjd,bhkd->bhd", weights, v1, v2)
