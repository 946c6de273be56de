"""Scaled dot-product attention on (virtual) sequences, by the backend that suits the case: Step 4 of Algorithm 1.

Every mechanism that ends in one standard attention goes through `attend`: IHA with its N·P virtual tokens, plain
multi-head attention with P = 1. A named backend that cannot do what is asked raises and says why; only "auto" chooses.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops import flash, flex
from iha.ops.tiles import tiled_attention
from iha.ops.visibility import Visibility

Backend = Literal["auto", "reference", "sdpa", "banded", "flex", "flash"]
BACKENDS: tuple[str, ...] = get_args(Backend)


@dataclass(frozen=True)
class _Case:
    """One call, as the backends look at it."""

    q: Tensor  # (B, Nq*P, H, D)
    k: Tensor  # (B, N*P, G, D)
    v: Tensor  # (B, N*P, G, D)
    visibility: Visibility
    key_padding_mask: Tensor | None  # (B, N)
    document_ids: Tensor | None  # (B, N)
    scale: float


def attend(
    q: Tensor,  # (B, Nq*P, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N*P, G, D), zeros where a token is padding
    v: Tensor,  # (B, N*P, G, D), zeros where a token is padding
    visibility: Visibility,
    *,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:  # (B, Nq*P, H, D)
    """Attention of every query to the keys it may see; q, k and v must have been zeroed at padded tokens."""
    # The kernels read rows of D consecutive numbers.
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    case = _simplified(_Case(q, k, v, visibility, key_padding_mask, document_ids, scale))
    name = _choose(case) if backend == "auto" else backend
    if obstacle := _obstacle(name, case):
        raise ValueError(f"backend={name!r} cannot do this: {obstacle}")
    if name == "flash":
        return flash.attend(q, k, v, case.visibility, key_padding_mask, document_ids, scale)
    if name == "flex":
        return flex.attend(q, k, v, case.visibility, key_padding_mask, document_ids, scale)
    if name == "sdpa" and _is_plain(case):
        return _sdpa(case)
    return tiled_attention(q, k, v, case.visibility, key_padding_mask, document_ids, scale)


def _simplified(case: _Case) -> _Case:
    """The same function by the simplest rule: fewer special cases behind, more fast paths hit."""
    rule, P = case.visibility, case.visibility.num_pseudo_heads
    Nq, N = case.q.shape[1] // P, case.k.shape[1] // P
    rule = rule.clipped(N)
    if P == 1 and rule.causal == "token":
        rule = replace(rule, causal="virtual")
    if rule.window is None and Nq == 1 and (rule.causal == "token" or P == 1):
        rule = replace(rule, causal=None)  # the newest token sees everything
    return replace(case, visibility=rule)


def _is_plain(case: _Case) -> bool:
    """What `scaled_dot_product_attention` does without a mask tensor: all, or square causal on virtual tokens."""
    if case.key_padding_mask is not None or case.document_ids is not None or case.visibility.window is not None:
        return False
    square = case.q.shape[1] == case.k.shape[1]
    return case.visibility.causal is None or (case.visibility.causal == "virtual" and square)


def _sdpa(case: _Case) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (case.q, case.k, case.v))  # (B, H, N*P, D)
    causal, grouped = case.visibility.causal is not None, q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=case.scale, enable_gqa=grouped)
    return out.transpose(1, 2)


def _choose(case: _Case) -> str:
    if case.q.device.type == "cuda":
        if _obstacle("flash", case) is None:
            return "flash"
        if not _is_plain(case):
            return "flex"
    return "sdpa" if case.visibility.window is None else "banded"


def _obstacle(name: str, case: _Case) -> str | None:
    """Why this backend cannot do this case, or None."""
    if name == "sdpa" and case.visibility.window is not None:
        return f"window={case.visibility.window} is a sliding window; use 'banded', 'flex' or 'auto'"
    if name == "banded" and case.visibility.window is None:
        return "no window binds here, there is no band; use 'sdpa' or 'auto'"
    if name == "flex":
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (case.q, case.k, case.v))
        return flex.obstacle(case.q.device, needs_grad)
    if name == "flash":
        masked = case.key_padding_mask is not None or case.document_ids is not None
        return flash.obstacle(case.q, case.k, case.visibility, masked)
    return None
