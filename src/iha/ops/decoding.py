"""One new token against a cache of un-mixed heads: the decoding step of interleaved head attention.

Pseudo-keys and -values are linear in the cached heads, so the mixing weights need not be applied to the T cached tokens
at all: alpha_k moves to the query and alpha_v to the output, both of which are one token long. The cache is read twice
in two matrix products over all heads at once, and nothing of size T*P*D is ever built.
"""

import torch
from torch import Tensor

from iha.ops.mixing import mix
from iha.ops.rotary import turn
from iha.ops.visibility import Visibility


def decode_interleaved(
    q: Tensor,  # (B, 1, H, D), the new token
    k: Tensor,  # (B, T, G, D), un-mixed, the new token among them
    v: Tensor,  # (B, T, G, D)
    alpha_q: Tensor,  # (H, H, P)
    alpha_k: Tensor,  # (G, G, P)
    alpha_v: Tensor,  # (G, G, P)
    collapse: Tensor,  # (H, P) or (H, H*P)
    *,
    visible: Tensor | None = None,  # (1 or B, P, P*T) bool, of (query p; key p', t); everything when None
    pseudo_rotary: tuple[Tensor, Tensor] | None = None,  # cos and sin, (P, D/2) each, as for the whole operator
    scale: float | None = None,
) -> Tensor:  # (B, 1, H, D)
    B, T, G, D = k.shape
    H, P = q.shape[2], alpha_q.shape[2]
    scale = D**-0.5 if scale is None else scale
    q = mix(q, alpha_q).transpose(1, 2)  # (B, H, P, D)
    q = _turned_for_each_key(q, *pseudo_rotary) if pseudo_rotary is not None else q.unsqueeze(3)  # (B, H, P, P or 1, D)

    # alpha_k to the query: it meets source head m of a key directly, once for every pseudo-head p' of the key.
    key_side = alpha_k.permute(1, 2, 0).mul(scale)[:, None, None, :, :, None]  # (g, 1, 1, p', m, 1)
    q = q.view(B, G, H // G, P, -1, 1, D) * key_side  # (B, G, H/G, P, P, M, D)
    scores = q.reshape(B, H * P * P, G * D) @ k.flatten(2).mT  # (B, H*P*P, T)
    weights = _softmax(scores.view(B, H, P, P * T), visible)  # over all pseudo-keys p', t

    per_head = collapse.shape == (H, P)
    if per_head:
        weights = collapse[:, None, :] @ weights  # (B, H, 1, P*T): R acts on outputs, so on weights just as well
    rows = weights.shape[2]  # 1 or P
    out = weights.view(B, H * rows * P, T) @ v.flatten(2)  # (B, H*rows*P', M*D)

    # alpha_v to the output: sum over pseudo-head p' and source head m.
    value_side = alpha_v.permute(1, 2, 0).reshape(G, 1, 1, 1, P * G)  # (g, 1, 1, 1, (p', m))
    out = value_side @ out.view(B, G, H // G, rows, P * G, D)  # (B, G, H/G, rows, 1, D)
    if per_head:
        return out.view(B, 1, H, D)
    return (collapse @ out.reshape(B, H * P, D)).unsqueeze(1)


def visible_to_newest(
    visibility: Visibility,
    newest: int | Tensor,  # token index of the query
    first: int | Tensor,  # token index of the first cached token
    tokens: int,  # T
    key_padding_mask: Tensor | None,  # (B, T) bool
    device: torch.device,
) -> Tensor:  # (1 or B, P, P*T)
    """What the newest token sees in a buffer of T tokens, laid out for `decode_interleaved`.

    The buffer may hold tokens that are yet to come (a static cache); token indices may be tensors, so that compiled code
    does not depend on them.
    """
    P = visibility.num_pseudo_heads
    p = torch.arange(P, device=device)
    t = first + torch.arange(tokens, device=device)  # (T,)
    i = newest * P + p[:, None, None]  # (P, 1, 1)
    j = t * P + p[:, None]  # (P, T)
    visible = visibility(i, j)[None]  # (1, P, P, T)
    if visibility.causal is None:
        visible = visible & (j <= i)
    if key_padding_mask is not None:
        visible = visible & key_padding_mask[:, None, None, :] | (j == i)  # a padded query sees itself: no empty row
    return visible.flatten(2)


def _turned_for_each_key(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """q (B, H, P, D) to (B, H, P, P, D): turning key p' by p' is turning the query back by p'."""
    q = turn(q.transpose(1, 2), cos, sin).transpose(1, 2)  # (B, H, P, D), by its own p
    return turn(q[:, :, :, None, None], cos, -sin).squeeze(4)


def _softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None], -torch.inf)
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)
