"""Cross-attention: the queries of one sequence attend to the keys and values of another, its memory.

The two lengths are independent, nothing is causal, and only the memory has padding. There is no RoPE: positions in two
sequences have no common origin. So a pseudo-query sees all pseudo-keys of all real tokens of the memory.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops.checks import check_tensors
from iha.ops.inputs import as_autocast, repeat_heads
from iha.ops.mixing import collapse_pseudo_heads, mix
from iha.ops.precision import wide


def interleaved_cross_attention(
    q: Tensor,  # (B, Nq, H, D)
    k: Tensor,  # (B, N, G, D), of the memory
    v: Tensor,  # (B, N, G, D)
    alpha_q: Tensor,  # (H, H, P), indexed [source head, head, pseudo-head]
    alpha_k: Tensor,  # (G, G, P)
    alpha_v: Tensor,  # (G, G, P)
    collapse: Tensor,  # (H, P) or (H, H*P)
    *,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token of the memory
    with_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:  # (B, Nq, H, D), and the weights (B, H, Nq*P, N*P) if asked for
    """Algorithm 1 between two sequences: mix, attend without causality, collapse. Nq and N may be any numbers."""
    q, k, v, alpha_q, alpha_k, alpha_v, collapse = as_autocast(q, k, v, alpha_q, alpha_k, alpha_v, collapse)
    check_tensors(q[:, :1], k, v, alpha_q, alpha_k, alpha_v, collapse)  # one query: their number is free
    check_memory(k, key_padding_mask)
    k, v = without_padding(key_padding_mask, k, v)
    real = None if key_padding_mask is None else key_padding_mask.repeat_interleave(alpha_k.shape[2], dim=1)  # (B, N*P)
    out, weights = attend_to_memory(mix(q, alpha_q), mix(k, alpha_k), mix(v, alpha_v), real, with_weights)
    return collapse_pseudo_heads(out, collapse, alpha_q.shape[2]), weights


def multihead_cross_attention(
    q: Tensor,  # (B, Nq, H, D)
    k: Tensor,  # (B, N, G, D), of the memory
    v: Tensor,  # (B, N, G, D)
    *,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token of the memory
    with_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:  # (B, Nq, H, D), and the weights (B, H, Nq, N) if asked for
    """softmax(q kᵀ / √D) v per head, over the real tokens of the memory."""
    q, k, v = as_autocast(q, k, v)
    check_memory(k, key_padding_mask)
    k, v = without_padding(key_padding_mask, k, v)
    return attend_to_memory(q, k, v, key_padding_mask, with_weights)


def attend_to_memory(
    q: Tensor,  # (B, Nq, H, D)
    k: Tensor,  # (B, N, G, D), zeros where a token is padding
    v: Tensor,
    real: Tensor | None,  # (B, N) bool
    with_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    visible = None if real is None else visible_memory(real)[:, None, None]  # (B, 1, 1, N)
    if not with_weights:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (B, H, N, D)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=q.shape[1] != k.shape[1])
        return out.transpose(1, 2), None
    k, v = repeat_heads(k, q.shape[2]), repeat_heads(v, q.shape[2])
    scores = q.shape[-1] ** -0.5 * torch.einsum("bihd,bjhd->bhij", q, k)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    weights = scores.softmax(dim=-1, dtype=wide(q.dtype)).to(q.dtype)
    return torch.einsum("bhij,bjhd->bihd", weights, v), weights


def visible_memory(real: Tensor) -> Tensor:
    """The tokens that queries may see, (B, N). A memory without a real token is seen as a whole: its values are zeros,
    and so is the output, where a softmax over nothing would be NaN."""
    return real | ~real.any(dim=1, keepdim=True)


def without_padding(key_padding_mask: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors (B, N, ...) with zeros at padded tokens. A mask alone would not stop NaN, because 0 * NaN is NaN."""
    if key_padding_mask is None:
        return tensors
    return tuple(
        t.masked_fill(~key_padding_mask.view(*key_padding_mask.shape, *[1] * (t.dim() - 2)), 0) for t in tensors
    )


def check_memory(memory: Tensor, key_padding_mask: Tensor | None) -> None:
    if key_padding_mask is None:
        return
    if tuple(key_padding_mask.shape) != tuple(memory.shape[:2]):
        shape = tuple(key_padding_mask.shape)
        raise ValueError(f"key_padding_mask must be (B, N) = {tuple(memory.shape[:2])} as the memory is, got {shape}")
    if key_padding_mask.dtype != torch.bool:
        raise ValueError(f"key_padding_mask must be bool (True = a real token), got {key_padding_mask.dtype}")
