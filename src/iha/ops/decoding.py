"""One new token against a cache of un-mixed heads: the decoding step of interleaved head attention.

Pseudo-keys and pseudo-values are linear in the cached heads, so the T cached tokens need not be mixed. Instead alpha_k
is applied to the query and alpha_v to the output, which are one token long. Two matrix products over all heads read the
cache, one for the keys and one for the values; nothing of size T*P*D is built. RoPE of pseudo-keys is applied to the
query too: rotating pseudo-key p' by +p' gives the same scores as rotating the query by -p'.
"""

import torch
from torch import Tensor

from iha.ops import one_token
from iha.ops.masking import Masking
from iha.ops.mixing import is_per_head
from iha.ops.precision import wide
from iha.ops.rotary import rotate_by_full


def decode_interleaved(
    q: Tensor,  # (B, 1, H, D), the new token, rotated to its token's position
    k: Tensor,  # (B, G, T, D), un-mixed and rotated, including the new token
    v: Tensor,  # (B, G, T, D), un-mixed
    alpha_q: Tensor,  # (H, H', P_q), indexed [source head, head, pseudo-head]
    alpha_k: Tensor,  # (G, G', P_k)
    alpha_v: Tensor,  # (G, G', P_k)
    collapse: Tensor,  # (H, P_q) or (H, H'*P_q)
    *,
    bias: Tensor | None = None,  # (1 or B, H'*P_q*P_k, T), from `additive_mask`; all is visible when None
    # Full cos and sin, (P, P, 1, D) each: rotation by p - p' at [p, p']. Only where P_q = P_k.
    rotary: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # (B, 1, H, D)
    B, G, T, D = k.shape
    if is_per_head(collapse, *alpha_q.shape[1:]):
        mixing = alpha_q, alpha_k, alpha_v, collapse
        out = one_token.decode_interleaved(q, k, v, mixing, bias, rotary, D**-0.5)
        if out is not None:
            return out
    (_, H, P_q), (_, mixed, P_k) = alpha_q.shape, alpha_k.shape  # from here on H is the number of mixed heads
    pseudo = alpha_q.flatten(1).mT.expand(B, -1, -1) @ q.squeeze(1).mul(D**-0.5)  # (B, H*P_q, D)
    q = pseudo.view(B, H, P_q, 1, D)
    if rotary is not None:  # before alpha_k makes G times as many rows of it
        q = rotate_by_full(q, *(table.squeeze(2) for table in rotary))  # (B, H, P_q, P_k, D)
    of_key = alpha_k.permute(1, 2, 0)[:, None, :, :, None]  # (G', 1, P_k, G, 1)
    q = q.reshape(B, mixed, H // mixed * P_q, -1, 1, D) * of_key  # (B, G', H/G'*P_q, P_k, G, D)
    scores = _scores(q.reshape(B, H * P_q * P_k, G, D), k, bias)  # (B, H*P_q*P_k, T)
    weights = scores.view(B, H, P_q, P_k * T).softmax(dim=-1, dtype=wide(scores.dtype))  # over all pseudo-keys p', t
    weights = weights.to(scores.dtype)

    per_head = is_per_head(collapse, H, P_q)
    if per_head:
        weights = collapse[:, None, :] @ weights  # (B, H, 1, P_k*T): R is linear, so it may act on weights
    rows = weights.shape[2]  # 1 or P_q
    out = _weighted(weights.view(B, H * rows * P_k, T), v)  # (B, H*rows*P_k, G, D)
    value = alpha_v.permute(1, 2, 0).reshape(mixed, 1, 1, 1, P_k * G)
    out = value @ out.reshape(B, mixed, H // mixed, rows, P_k * G, D)  # (B, G', H/G', rows, 1, D)
    if per_head:
        return out.view(B, 1, H, D)
    return (collapse @ out.reshape(B, H * P_q, D)).unsqueeze(1)


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
) -> Tensor:  # (1 or B, P_q, P_k, T) bool: query p, key p' of token t
    """What the newest token sees in a buffer of T tokens.

    The buffer may have room for later tokens (a static cache). Token indices may be tensors, so that compiled code
    is not specialised to their values.
    """
    P_q, P_k = masking.visibility.per_token
    p, p_k = torch.arange(P_q, device=device), torch.arange(P_k, device=device)
    i = newest * P_q + p[:, None, None]  # (P_q, 1, 1)
    j = (first + torch.arange(tokens, device=device)) * P_k + p_k[:, None]  # (P_k, T)
    visible = masking.visibility(i, j)[None]
    if (document := masking.document_ids) is not None:
        own = document.index_select(1, torch.as_tensor(newest - first, device=device).reshape(1))  # (B, 1)
        visible = visible & (document == own)[:, None, None, :]
    if (real := masking.key_padding_mask) is not None:
        visible = visible & real[:, None, None, :] | masking.visibility.is_own(
            i, j
        )  # a padded query sees itself: no empty row
    return visible


def additive_mask(visible: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    """The mask of `visible_to_newest` as a bias for the two decoding functions, (1 or B, H*P_q*P_k, T)."""
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
    return bias.flatten(1, 2).repeat(1, num_heads, 1)
