"""One new token against a cache of un-mixed heads: the decoding step of interleaved head attention.

Pseudo-keys and pseudo-values are linear in the cached heads, so the T cached tokens need not be mixed. Instead alpha_k
is applied to the query and alpha_v to the output, which are one token long. Two matrix products over all heads read the
cache, one for the keys and one for the values; nothing of size T*P*D is built. RoPE of pseudo-keys is applied to the
query too: rotating pseudo-key p' by +p' gives the same scores as rotating the query by -p'.
"""

import torch
from torch import Tensor

from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.rotary import rotate_by_full


def decode_interleaved(
    q: Tensor,  # (B, 1, H, D), the new token, rotated to its token's position
    k: Tensor,  # (B, G, T, D), un-mixed and rotated, including the new token
    v: Tensor,  # (B, G, T, D), un-mixed
    alpha_q: Tensor,  # (H, H, P), indexed [source head, head, pseudo-head]
    alpha_k: Tensor,  # (G, G, P)
    alpha_v: Tensor,  # (G, G, P)
    collapse: Tensor,  # (H, P) or (H, H*P)
    *,
    bias: Tensor | None = None,  # (1 or B, H*P*P, T), from `additive_mask`; everything is visible when None
    rotary: tuple[Tensor, Tensor] | None = None,  # full cos and sin, (P, P, 1, D) each: rotation by p - p' at [p, p']
) -> Tensor:  # (B, 1, H, D)
    B, G, T, D = k.shape
    H, P = q.shape[2], alpha_q.shape[2]
    pseudo = alpha_q.flatten(1).mT.expand(B, -1, -1) @ q.squeeze(1).mul(D**-0.5)  # (B, H*P, D)
    q = pseudo.view(B, H, P, 1, D)
    if rotary is not None:  # before alpha_k makes G times as many rows of it
        q = rotate_by_full(q, *(table.squeeze(2) for table in rotary))  # (B, H, P, P', D)
    of_key = alpha_k.permute(1, 2, 0)[:, None, :, :, None]  # (G, 1, P', M, 1), M = G source heads
    q = q.reshape(B, G, H // G * P, -1, 1, D) * of_key  # (B, G, H/G*P, P', M, D)
    scores = _scores(q.reshape(B, H * P * P, G, D), k, bias)  # (B, H*P*P, T)
    weights = scores.view(B, H, P, P * T).softmax(dim=-1, dtype=wide(scores.dtype))  # over all pseudo-keys p', t
    weights = weights.to(scores.dtype)

    per_head = collapse.shape == (H, P)
    if per_head:
        weights = collapse[:, None, :] @ weights  # (B, H, 1, P*T): R is linear, so it may act on weights
    rows = weights.shape[2]  # 1 or P
    out = _weighted(weights.view(B, H * rows * P, T), v)  # (B, H*rows*P', M, D)
    value = alpha_v.permute(1, 2, 0).reshape(G, 1, 1, 1, P * G)
    out = value @ out.reshape(B, G, H // G, rows, P * G, D)  # (B, G, H/G, rows, 1, D)
    if per_head:
        return out.view(B, 1, H, D)
    return (collapse @ out.reshape(B, H * P, D)).unsqueeze(1)


def _scores(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Dot products of q (B, X, G, D) and k (B, G, T, D) over heads and features, plus the bias: (B, X, T)."""
    if _token_after_token(k):  # the heads of a token are adjacent in memory: one product
        rows, keys = q.flatten(2), k.transpose(1, 2).flatten(2).mT
        return torch.bmm(rows, keys) if bias is None else torch.baddbmm(bias.to(q.dtype), rows, keys)
    scores = (q.transpose(1, 2) @ k.mT).sum(dim=1)
    return scores if bias is None else scores + bias


def _weighted(weights: Tensor, v: Tensor) -> Tensor:
    """Sums of v (B, G, T, D) over T, weighted by weights (B, X, T): (B, X, G, D)."""
    if _token_after_token(v):
        return torch.bmm(weights, v.transpose(1, 2).flatten(2)).unflatten(2, (v.shape[1], v.shape[3]))
    return (weights[:, None] @ v).transpose(1, 2)


def _token_after_token(x: Tensor) -> bool:
    """Whether x (B, G, T, D) is (B, T, G, D) in memory, as in our caches. Those of `transformers` are (B, G, T, D)."""
    return x.stride(1) == x.shape[3] and x.stride(3) == 1 and x.shape[1] > 1


def decode_multihead(
    q: Tensor,  # (B, 1, H, D), the new token
    k: Tensor,  # (B, G, T, D)
    v: Tensor,  # (B, G, T, D)
    bias: Tensor | None = None,  # (1 or B, H, T), from `additive_mask`
) -> Tensor:  # (B, 1, H, D)
    """Multi-head attention of one new token by two products. SDPA on CPU would repack all keys for a single row."""
    B, _, H, D = q.shape
    G = k.shape[1]
    q = q.mul(D**-0.5).view(B, G, H // G, D)
    scores = q @ k.mT  # (B, G, H/G, T)
    if bias is not None:
        scores = scores + bias.view(bias.shape[0], G, H // G, -1)
    return (scores.softmax(dim=-1, dtype=wide(scores.dtype)).to(v.dtype) @ v).view(B, 1, H, D)


def visible_to_newest(
    masking: Masking,  # its tensors are (B, T), for the tokens in the buffer
    newest: int | Tensor,  # token index of the query
    first: int | Tensor,  # token index of the first cached token
    tokens: int,  # T
    device: torch.device,
) -> Tensor:  # (1 or B, P, P, T) bool: query p, key p' of token t
    """What the newest token sees in a buffer of T tokens.

    The buffer may have room for later tokens (a static cache). Token indices may be tensors, so that compiled code
    is not specialised to their values.
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


def additive_mask(visible: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    """The mask of `visible_to_newest` as a bias for the two decoding functions, (1 or B, H*P*P, T)."""
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
    return bias.flatten(1, 2).repeat(1, num_heads, 1)
