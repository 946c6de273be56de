"""The paper, line by line: the oracle that every fast path is tested against.

Written to be compared with Algorithm 1 (Section 4) and Definition 3 of arXiv 2602.21371, not to be fast:
it materialises the (N·P_q)×(N·P_k) scores of every head. It computes in the precision of its inputs, so float64
inputs give a float64 oracle.

Names: B batch, N tokens, Nq query tokens, H heads, G KV heads, P pseudo-heads, D head width, Dv value width. Beyond the
paper, a token may have P_q pseudo-queries and P_k pseudo-keys, and H heads may be mixed into H' others.
"""

from typing import Literal

import torch
from torch import Tensor

Score = Literal["softmax", "linear", "hard"]


def interleaved_head_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N, G, D)
    v: Tensor,  # (B, N, G, Dv); the theorems need Dv != D
    alpha_q: Tensor,  # (H, H', P_q), indexed [source head m, head h, pseudo-head p]; in the paper (H, H, P)
    alpha_k: Tensor,  # (G, G', P_k)
    alpha_v: Tensor,  # (G, G', P_k)
    collapse: Tensor,  # R: (H, P_q) of Algorithm 1, or (H, H'*P_q) of Definition 3
    *,
    causal: str | None = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    rope_positions: str = "virtual",
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    score: Score = "softmax",
) -> Tensor:
    """Interleaved head attention by its definition; see `iha.interleaved_head_attention` for the arguments.

    `score` is the map from scaled dot products to attention weights: "softmax"; "linear", the identity
    (polynomial filters, Theorems 1 and 3); "hard", softmax at temperature 0 with ties averaged (CPM-3, Theorem 4).
    """
    Nq, N = q.shape[1], k.shape[1]
    (_, H, P_q), (_, G, P_k) = alpha_q.shape, alpha_k.shape  # from Step 2 on, H and G are the numbers of mixed heads
    if P_q != P_k and "virtual" in (causal, rope_positions if rope_theta is not None else None):
        raise ValueError(f"{P_q} pseudo-queries and {P_k} pseudo-keys have no common virtual index; use 'token'")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if key_padding_mask is not None:
        # The contents of padded positions must have no effect, not even NaN. (0 * NaN is NaN, so a mask is not enough.)
        k, v = (t.masked_fill(~key_padding_mask[:, :, None, None], 0) for t in (k, v))
        q = q.masked_fill(~key_padding_mask[:, N - Nq :, None, None], 0)

    # Step 2: pseudo-heads, learned mixtures over the heads.
    q = torch.einsum("mhp,bnmd->bnphd", alpha_q, q)  # (B, Nq, P_q, H, D)
    k = torch.einsum("mhp,bnmd->bnphd", alpha_k, k)  # (B, N, P_k, G, D)
    v = torch.einsum("mhp,bnmd->bnphd", alpha_v, v)  # (B, N, P_k, G, Dv)

    # Step 3: interleave, token-major: virtual index i = n*P + p.
    q, k, v = (t.flatten(1, 2) for t in (q, k, v))  # (B, Nq*P_q, H, D) and (B, N*P_k, G, D)
    queries = torch.arange((N - Nq) * P_q, N * P_q, device=q.device)
    keys = torch.arange(N * P_k, device=q.device)
    if rope_theta is not None:
        q = rotate(q, queries if rope_positions == "virtual" else queries // P_q, rope_theta)
        k = rotate(k, keys if rope_positions == "virtual" else keys // P_k, rope_theta)

    # Query head h reads KV head h*G // H.
    source = torch.arange(H, device=q.device) * G // H
    k, v = k[:, :, source], v[:, :, source]  # (B, N*P_k, H, D)

    # Step 4: scaled dot-product attention per head.
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k)  # (B, H, Nq*P_q, N*P_k)
    visible = _visible(queries[:, None], keys[None, :], (P_q, P_k), causal, window)[None]  # (1, Nq*P_q, N*P_k)
    if key_padding_mask is not None:
        visible = visible & key_padding_mask[:, queries // P_q, None] & key_padding_mask[:, None, keys // P_k]
    if document_ids is not None:
        visible = visible & (document_ids[:, queries // P_q, None] == document_ids[:, None, keys // P_k])
    weights = _weights(scores, visible[:, None], score)  # (B, H, Nq*P_q, N*P_k)
    out = torch.einsum("bhij,bjhd->bihd", weights, v)  # (B, Nq*P_q, H, Dv)

    # Step 5: un-interleave and collapse the pseudo-heads.
    out = out.unflatten(1, (Nq, P_q))  # (B, Nq, P_q, H, Dv)
    if collapse.shape == (H, P_q):
        return torch.einsum("hp,bnphd->bnhd", collapse, out)
    # Definition 3: R[h, (h', j)] also mixes the heads.
    return torch.einsum("hmp,bnpmd->bnhd", collapse.unflatten(1, (H, P_q)), out)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """RoPE in the half-split convention: feature d rotates with feature d + D/2, by position * theta^(-2d/D)."""
    half = x.shape[-1] // 2
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequency = theta ** -(torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = positions.to(torch.float64)[:, None, None] * frequency  # (N*P, 1, D/2)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    first, second = x[..., :half].to(dtype), x[..., half:].to(dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def _visible(i: Tensor, j: Tensor, per_token: tuple[int, int], causal: str | None, window: int | None) -> Tensor:
    """Whether virtual query i sees virtual key j; `per_token`: how many of them a token has."""
    P = per_token[0]
    token_i, token_j = i // P, j // per_token[1]
    if causal == "virtual":
        return (j <= i) if window is None else (j <= i) & (i - j < window * P)
    if causal == "token":
        return (token_j <= token_i) if window is None else (token_j <= token_i) & (token_i - token_j < window)
    everything = (i >= 0) & (j >= 0)
    return everything if window is None else (token_i - token_j).abs() < window


def _weights(scores: Tensor, visible: Tensor, score: Score) -> Tensor:
    """Scores to attention weights; a row that sees nothing gets zeros."""
    if score == "linear":
        return scores.masked_fill(~visible, 0)
    sees_something = visible.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~visible & sees_something, -torch.inf)
    if score == "hard":
        ties = scores == scores.amax(dim=-1, keepdim=True)
        # Divide in the scores' precision: a quotient of integers would be float32 for all inputs.
        weights = ties.to(scores.dtype) / ties.sum(dim=-1, keepdim=True)
        return weights * sees_something
    return scores.softmax(dim=-1) * sees_something
