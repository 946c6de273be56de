"""Checks of the arguments before anything is computed. Errors name the offending value."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from iha.ops.backends.dispatch import BACKENDS
from iha.ops.masking import Masking

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
CAUSALITIES = ("virtual", "token", None)
RopePositions = Literal["virtual", "token"]
ROPE_POSITIONS: tuple[RopePositions, ...] = get_args(RopePositions)


def check_tensors(
    q: Tensor, k: Tensor, v: Tensor, alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor
) -> None:
    """Shapes, precision and device of the operator's seven tensors."""
    named = {"q": q, "k": k, "v": v, "alpha_q": alpha_q, "alpha_k": alpha_k, "alpha_v": alpha_v, "collapse": collapse}
    for name, tensor in named.items():
        if tensor.dtype != q.dtype or not tensor.is_floating_point():
            raise ValueError(f"all tensors must have one floating dtype: q has {q.dtype}, {name} has {tensor.dtype}")
        if tensor.device != q.device:
            raise ValueError(f"all tensors must be on one device: q is on {q.device}, {name} on {tensor.device}")
    for name in ("q", "k", "v"):
        if named[name].dim() != 4:
            raise ValueError(f"{name} must be (B, N, heads, D), got shape {tuple(named[name].shape)}")
    B, Nq, H, D = q.shape
    N, G = k.shape[1], k.shape[2]
    if k.shape != v.shape or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(
            f"k and v must both be (B, N, G, D) with q's B and D: q has shape {tuple(q.shape)}, "
            f"k {tuple(k.shape)}, v {tuple(v.shape)}"
        )
    if any(size < 1 for size in (B, Nq, H, G, D)) or Nq > N:
        raise ValueError(
            f"need at least one query and no more queries than keys: q {tuple(q.shape)}, k {tuple(k.shape)}"
        )
    if H % G:
        raise ValueError(f"the number of k/v heads must divide the number of heads: {G} k/v heads, {H} heads")
    _check_mixing(H, G, alpha_q, alpha_k, alpha_v, collapse)


def _check_mixing(H: int, G: int, alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor) -> None:
    """Shapes of alpha and R for H heads and G k/v heads, which may be mixed into other numbers of heads."""
    for name, alpha, heads in (("alpha_q", alpha_q, H), ("alpha_k", alpha_k, G), ("alpha_v", alpha_v, G)):
        if alpha.dim() != 3 or alpha.shape[0] != heads or min(alpha.shape) < 1:
            raise ValueError(
                f"{name} must be (heads, mixed heads, pseudo-heads) = ({heads}, >= 1, >= 1), got {tuple(alpha.shape)}"
            )
    if alpha_k.shape != alpha_v.shape:
        raise ValueError(
            f"alpha_k and alpha_v must have one shape: alpha_k {tuple(alpha_k.shape)}, alpha_v {tuple(alpha_v.shape)}"
        )
    (_, mixed, P), mixed_kv = alpha_q.shape, alpha_k.shape[1]
    if mixed % mixed_kv:
        raise ValueError(
            f"the number of mixed k/v heads must divide that of mixed heads: {mixed_kv} k/v heads in alpha_k, "
            f"{mixed} heads in alpha_q"
        )
    if collapse.shape == (H, mixed * P) or (collapse.shape == (H, P) and mixed == H):
        return
    per_head = f"(H, P) = ({H}, {P}) or " if mixed == H else ""
    raise ValueError(
        f"collapse must be {per_head}(H, mixed heads * P) = ({H}, {mixed * P}), got {tuple(collapse.shape)}"
    )


def check_options(
    rope_theta: float | None,
    rope_positions: str,
    scale: float | None,
    backend: str,
    head_dim: int,
    per_token: tuple[int, int] = (1, 1),  # P_q and P_k
) -> None:
    if rope_positions not in ROPE_POSITIONS:
        raise ValueError(f"rope_positions must be one of {ROPE_POSITIONS}, got {rope_positions!r}")
    if rope_theta is not None:
        check_common_index("rope_positions", rope_positions, per_token)
    if rope_theta is not None and not 0 < rope_theta < math.inf:
        raise ValueError(f"rope_theta must be positive and finite, got {rope_theta!r}")
    if rope_theta is not None and head_dim % 2:
        raise ValueError(f"RoPE rotates pairs of features: the head width must be even, got {head_dim}")
    if scale is not None and not -math.inf < scale < math.inf:
        raise ValueError(f"scale must be finite, got {scale!r}")
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {BACKENDS}, got {backend!r}")


def check_common_index(name: str, value: str | None, per_token: tuple[int, int]) -> None:
    """Virtual causality and virtual positions number queries and keys alike, so a token must have as many of both."""
    P_q, P_k = per_token
    if value == "virtual" and P_q != P_k:
        raise ValueError(
            f"{name}='virtual' needs as many pseudo-queries as pseudo-keys, got {P_q} and {P_k}: there is no common "
            f"virtual index; use {name}='token'"
        )


def check_dropout(dropout_p: float) -> None:
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout_p!r}")


def check_masking(masking: Masking, k: Tensor) -> None:
    causal, window = masking.visibility.causal, masking.visibility.window
    if causal not in CAUSALITIES:
        raise ValueError(f"causal must be one of {CAUSALITIES}, got {causal!r}")
    check_common_index("causal", causal, masking.visibility.per_token)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ValueError(f"window must be a number of tokens >= 1 or None, got {window!r}")
    shape, key_padding_mask, document_ids = tuple(k.shape[:2]), masking.key_padding_mask, masking.document_ids
    for name, mask in (("key_padding_mask", key_padding_mask), ("document_ids", document_ids)):
        if mask is not None and tuple(mask.shape) != shape:
            raise ValueError(f"{name} must be (B, N) = {shape} as k is, got {tuple(mask.shape)}")
        if mask is not None and mask.device != k.device:
            raise ValueError(f"{name} must be on k's device {k.device}, got {mask.device}")
    if key_padding_mask is not None and key_padding_mask.dtype != torch.bool:
        raise ValueError(f"key_padding_mask must be bool (True = a real token), got {key_padding_mask.dtype}")
    if document_ids is not None and document_ids.dtype not in INTEGERS:
        raise ValueError(f"document_ids must be integers, got {document_ids.dtype}")
