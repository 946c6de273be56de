"""Paired heads (modded-nanogpt, pull request 191): H heads, viewed as H/2 heads of twice the tokens.

Row 2n + p of head h' is the projected head p·H/2 + h' of token n, for queries, keys and values. Attention over these 2N
rows costs twice multi-head attention; nothing is mixed, and the view needs no copy. It is interleaved head attention
with P = 2, H' = H/2, one-hot alpha and R (`iha.layers.initialisation.paired_heads`), without the weights.

The authors' RoPE turns neighbouring heads, 2m and 2m + 1, by 2n and 2n + 1, although their view pairs head m with head
m + H/2. Here RoPE follows the rows: position 2n + p.
"""

import torch
from torch import Tensor

from iha.ops import inputs
from iha.ops.backends.attention import attend
from iha.ops.masking import Masking
from iha.ops.rotary import rotate, rotate_by
from iha.ops.visibility import Causality


def paired_head_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens; H is even
    k: Tensor,  # (B, N, G, D); G is even
    v: Tensor,  # (B, N, G, D)
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    pseudo_rotary: tuple[Tensor, Tensor] | None = None,  # cos and sin, (2, D/2) each
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    backend: str = "auto",
    dropout_p: float = 0.0,
) -> Tensor:  # (B, Nq, H, D)
    """Attention of pairs of heads to pairs of heads. Arguments as in `iha.interleaved_head_attention`."""
    masking = Masking.of(causal, window, key_padding_mask, document_ids, num_pseudo_heads=2)
    check_pairs(q.shape[2], k.shape[2])
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, (), masking, rope_theta=None, scale=scale, backend=backend,
    )  # fmt: skip
    if v.shape != k.shape:
        raise ValueError(f"k and v must have the same shape: k {tuple(k.shape)}, v {tuple(v.shape)}")
    q, k, v = pairs(q, pseudo_rotary), pairs(k, pseudo_rotary), pairs(v)  # (B, 2*N, H/2, D)
    if rope_theta is not None:
        positions = torch.arange(k.shape[1], device=q.device)  # (2*N,)
        q, k = rotate(q, positions[k.shape[1] - q.shape[1] :], rope_theta), rotate(k, positions, rope_theta)
    return unpaired(attend(q, k, v, masking, scale=factor, backend=backend, dropout_p=dropout_p))


def pairs(x: Tensor, rotary: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """x (B, N, H, D) as (B, 2*N, H/2, D). `rotary`, cos and sin of (2, D/2), rotates row 2n + p by the p-th angle."""
    x = x.unflatten(2, (2, -1))  # (B, N, 2, H/2, D)
    return (x if rotary is None else rotate_by(x, *rotary)).flatten(1, 2)


def unpaired(x: Tensor) -> Tensor:
    """The inverse of `pairs`."""
    return x.unflatten(1, (-1, 2)).flatten(2, 3)


def check_pairs(num_heads: int, num_kv_heads: int) -> None:
    if num_heads % 2 or num_kv_heads % 2:
        raise ValueError(
            f"paired heads need even numbers of heads, got num_heads={num_heads} and num_kv_heads={num_kv_heads}"
        )
