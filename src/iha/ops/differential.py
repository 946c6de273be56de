"""Differential attention (Ye et al. 2024, arXiv 2410.05258), in the form of Microsoft's flash implementation.

Heads 2p and 2p + 1 form a pair, which shares one value head of width 2D:

    A[h]   = softmax over the visible keys of q[h] k[h]ᵀ / √D
    out[p] = (1 - lambda_init) · RMSNorm((A[2p] - lambda · A[2p+1]) v[p])

The difference of two attention maps applied to v is the difference of two attention outputs. So two calls of a fused
kernel suffice, and no map is in memory. Values are twice as wide as keys, which few kernels support, so q and k are
padded with zeros to 2D. This is exact. It takes as many FLOPs as the usual workaround (split v, attend four times) and
half the exponentials.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops import inputs
from iha.ops.backends.attention import attend
from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.visibility import Causality


def lambda_init_at(depth: int) -> float:
    """0.8 - 0.6·exp(-0.3·depth), depth being the layer's index from 0: 0.2 in the first layer, rising to 0.8."""
    if depth < 0:
        raise ValueError(f"depth must be a layer index from 0, got {depth}")
    return 0.8 - 0.6 * math.exp(-0.3 * depth)


def lambda_from(q1: Tensor, k1: Tensor, q2: Tensor, k2: Tensor, lambda_init: float) -> Tensor:
    """The scalar lambda = exp(q1·k1) - exp(q2·k2) + lambda_init of four learned vectors (D,), in at least float32."""
    q1, k1, q2, k2 = (t.to(wide(t.dtype)) for t in (q1, k1, q2, k2))
    return (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + lambda_init


def differential_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens; heads 2p and 2p + 1 are a pair
    k: Tensor,  # (B, N, G, D), paired in the same way
    v: Tensor,  # (B, N, G/2, 2D)
    lambda_: Tensor,  # scalar
    norm_weight: Tensor,  # (2D,), the same for every pair
    *,
    lambda_init: float,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    eps: float = 1e-5,
    backend: str = "auto",
) -> Tensor:  # (B, Nq, H/2, 2D)
    """Differential attention by two fused attentions."""
    _check_pairs(q, k, v, norm_weight)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale, backend=backend,
    )  # fmt: skip
    D = q.shape[-1]

    def attention(member: int) -> Tensor:
        q_m, k_m = (F.pad(t[:, :, member::2], (0, D)) for t in (q, k))  # (B, N, H/2 or G/2, 2D)
        return attend(
            q_m, k_m, v, masking, scale=factor, backend=backend,
        )  # (B, Nq, H/2, 2D)  # fmt: skip

    return normalised_difference(attention(0), attention(1), lambda_, norm_weight, lambda_init, eps)


def differential_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lambda_: Tensor,
    norm_weight: Tensor,
    *,
    lambda_init: float,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | None = None,
    scale: float | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The definition: the difference of two attention maps, both in memory, applied to v, then the norm."""
    _check_pairs(q, k, v, norm_weight)
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale,
    )  # fmt: skip
    Nq, N, pairs = q.shape[1], k.shape[1], q.shape[2] // 2
    visible = masking.tile((N - Nq, N), (0, N), q.device)  # (1 or B, Nq, N)
    v = inputs.repeat_heads(v, pairs)  # (B, N, H/2, 2D)
    maps = []
    for member in (0, 1):
        k_m = inputs.repeat_heads(k[:, :, member::2], pairs)  # (B, N, H/2, D)
        logits = factor * torch.einsum("bihd,bjhd->bhij", q[:, :, member::2], k_m)
        maps.append(logits.masked_fill(~visible[:, None], -torch.inf).softmax(dim=-1))  # (B, H/2, Nq, N)
    out = torch.einsum("bhij,bjhd->bihd", maps[0] - lambda_ * maps[1], v)  # (B, Nq, H/2, 2D)
    out = out * (out.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * norm_weight
    return (1 - lambda_init) * out


def normalised_difference(
    first: Tensor, second: Tensor, lambda_: Tensor, norm_weight: Tensor, lambda_init: float, eps: float = 1e-5
) -> Tensor:
    """RMSNorm(first - lambda · second) · (1 - lambda_init) for the two outputs of every pair, (B, Nq, H/2, 2D) each."""
    dtype = wide(first.dtype)
    out = first.to(dtype) - lambda_.to(dtype) * second.to(dtype)
    out = F.rms_norm(out, out.shape[-1:], norm_weight.to(dtype), eps)
    return ((1 - lambda_init) * out).to(first.dtype)


def _check_pairs(q: Tensor, k: Tensor, v: Tensor, norm_weight: Tensor) -> None:
    H, G, D = q.shape[2], k.shape[2], q.shape[3]
    if H % 2 or G % 2:
        raise ValueError(f"heads are compared in pairs: need even numbers of them, got {H} heads and {G} k/v heads")
    if v.shape[2:] != (G // 2, 2 * D):
        raise ValueError(f"v must be (B, N, G/2, 2D) = (B, N, {G // 2}, {2 * D}), got {tuple(v.shape)}")
    if norm_weight.shape != (2 * D,):
        raise ValueError(f"norm_weight must be (2D,) = ({2 * D},), got {tuple(norm_weight.shape)}")
