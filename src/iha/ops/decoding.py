"""One new token against a cache of un-mixed heads: the decoding step of interleaved head attention.

Pseudo-keys and -values are linear in the cached heads, so the mixing weights need not be applied to the T cached tokens
at all: alpha_k moves to the query and alpha_v to the output, both of which are one token long. The cache is read twice
in two matrix products over all heads at once, and nothing of size T*P*D is ever built. RoPE moves likewise: rotating
pseudo-key p' forward by p' is rotating the query back by p'.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.rotary import rotate_by_full


class FoldedMixing(NamedTuple):
    """alpha and R in the form of the decoding step; the same for every token."""

    query: Tensor  # (H*P*P*G, H): from the query's heads to [h, p, p', m], one for each pseudo-key and source head
    value: Tensor  # (G, 1, 1, 1, P*G): from [p', m] to the value of head g
    collapse: Tensor  # (H, P) or (H, H*P)


def fold_mixing(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, scale: float) -> FoldedMixing:
    """From alpha_q (H, H, P), alpha_k and alpha_v (G, G, P) and R (H, P) or (H, H*P)."""
    H, G, P = alpha_q.shape[0], alpha_k.shape[0], alpha_q.shape[2]
    of_query = alpha_q.permute(1, 2, 0).reshape(G, H // G, P, 1, 1, H)  # [g, h in g, p, -, -, m']
    of_key = alpha_k.permute(1, 2, 0).reshape(G, 1, 1, P, G, 1)  # [g, -, -, p', m, -]
    query = (scale * of_query * of_key).reshape(H * P * P * G, H)
    return FoldedMixing(query, alpha_v.permute(1, 2, 0).reshape(G, 1, 1, 1, P * G), collapse)


def decode_interleaved(
    q: Tensor,  # (B, 1, H, D), the new token
    k: Tensor,  # (B, T, G, D), un-mixed, the new token among them
    v: Tensor,  # (B, T, G, D)
    mixing: FoldedMixing,
    *,
    bias: Tensor | None = None,  # (1 or B, H*P*P, T), as of `decoding_bias`; everything is visible when None
    rotary: tuple[Tensor, Tensor] | None = None,  # (..., P, P, 1, D) each, as of `decoding_rotary`
) -> Tensor:  # (B, 1, H, D)
    B, T, G, D = k.shape
    H, P = q.shape[2], mixing.value.shape[-1] // G
    q = torch.bmm(mixing.query.expand(B, -1, -1), q.squeeze(1))  # (B, H*P*P*G, D)
    if rotary is not None:
        q = rotate_by_full(q.view(B, H, P, P, G, D), *rotary)
    q, keys, values = q.view(B, H * P * P, G * D), k.flatten(2).mT, v.flatten(2)
    scores = torch.bmm(q, keys) if bias is None else torch.baddbmm(bias, q, keys)  # (B, H*P*P, T)
    weights = scores.view(B, H, P, P * T).softmax(dim=-1, dtype=wide(scores.dtype))  # over all pseudo-keys p', t
    weights = weights.to(scores.dtype)

    per_head = mixing.collapse.shape == (H, P)
    if per_head:
        weights = mixing.collapse[:, None, :] @ weights  # (B, H, 1, P*T): R acts on outputs, so on weights just as well
    rows = weights.shape[2]  # 1 or P
    out = torch.bmm(weights.view(B, H * rows * P, T), values)  # (B, H*rows*P', M*D)
    out = mixing.value @ out.view(B, G, H // G, rows, P * G, D)  # (B, G, H/G, rows, 1, D)
    if per_head:
        return out.view(B, 1, H, D)
    return (mixing.collapse @ out.reshape(B, H * P, D)).unsqueeze(1)


def decode_multihead(
    q: Tensor,  # (B, 1, H, D), the new token
    k: Tensor,  # (B, T, G, D)
    v: Tensor,  # (B, T, G, D)
    bias: Tensor | None = None,  # (1 or B, H, T), as of `decoding_bias`
) -> Tensor:  # (B, 1, H, D)
    """Multi-head attention of one new token: two products, where SDPA on CPU packs all keys for a single row."""
    B, _, H, D = q.shape
    G = k.shape[2]
    q = q.mul(D**-0.5).view(B, G, H // G, D)
    scores = q @ k.permute(0, 2, 3, 1)  # (B, G, H/G, T)
    if bias is not None:
        scores = scores + bias.view(bias.shape[0], G, H // G, -1)
    return (scores.softmax(dim=-1, dtype=wide(scores.dtype)).to(v.dtype) @ v.transpose(1, 2)).view(B, 1, H, D)


def visible_to_newest(
    masking: Masking,  # its tensors (B, T): of the tokens in the buffer
    newest: int | Tensor,  # token index of the query
    first: int | Tensor,  # token index of the first cached token
    tokens: int,  # T
    device: torch.device,
) -> Tensor:  # (1 or B, P, P, T) bool: query p, key p' of token t
    """What the newest token sees in a buffer of T tokens.

    The buffer may hold tokens that are yet to come (a static cache). Token indices may be tensors, so that compiled
    code does not depend on them.
    """
    P = masking.visibility.num_pseudo_heads
    p = torch.arange(P, device=device)
    i = newest * P + p[:, None, None]  # (P, 1, 1)
    j = (first + torch.arange(tokens, device=device)) * P + p[:, None]  # (P, T)
    visible = masking.visibility(i, j)[None]
    if (document := masking.document_ids) is not None:
        own = document.index_select(1, torch.as_tensor(newest - first, device=device).reshape(1))  # (B, 1)
        visible = visible & (document == own)[:, None, None, :]
    if (real := masking.key_padding_mask) is not None:
        visible = visible & real[:, None, None, :] | (j == i)  # a padded query sees itself: no empty row
    return visible


def decoding_bias(visible: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    """`visible_to_newest` as the two decoding steps take it, (1 or B, H*P*P, T)."""
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
    return bias.flatten(1, 2).repeat(1, num_heads, 1)


def decoding_positions(positions: Tensor, num_pseudo_heads: int) -> Tensor:
    """Where the query stands to each of its keys under virtual positions: (...) token positions n to (..., P, P, 1).

    The keys have been rotated to n*P, without their p'.
    """
    p = torch.arange(num_pseudo_heads, device=positions.device)
    offsets = (p[:, None] - p)[:, :, None]  # (P, P, 1): p - p'
    return positions[..., None, None, None] * num_pseudo_heads + offsets
