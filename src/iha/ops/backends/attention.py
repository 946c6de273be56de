"""Scaled dot-product attention on (virtual) sequences: Step 4 of Algorithm 1, by the backend that suits the case.

Every mechanism built on standard attention calls `attend`: IHA with its N·P_q virtual queries and N·P_k virtual keys,
multi-head attention with P_q = P_k = 1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops.backends import flash, flex
from iha.ops.backends.band_native import runs_natively
from iha.ops.backends.case import Case
from iha.ops.backends.dispatch import FORMULA, choose_backend
from iha.ops.backends.formula import attend_with_weights
from iha.ops.backends.kernels import widen_narrow_heads
from iha.ops.backends.tiled import tiled_attention
from iha.ops.checks import check_dropout
from iha.ops.masking import Masking

_FEWEST_SCORES = 1 << 16  # below, a call of our own operator costs more than its kernel gains


def attend(
    q: Tensor,  # (B, Nq*P_q, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N*P_k, G, D), zeros where a token is padding
    v: Tensor,  # (B, N*P_k, G, D), zeros where a token is padding
    masking: Masking,
    *,
    scale: float | None = None,
    backend: str = "auto",
    dropout_p: float = 0.0,
) -> Tensor:  # (B, Nq*P_q, H, D)
    """Attention of every query to the keys it may see; q, k and v must have been zeroed at padded tokens."""
    check_dropout(dropout_p)
    # The kernels read rows of D consecutive numbers.
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if scale <= 0:  # torch's causal kernels multiply the mask's -inf by the scale
        q, scale = (-q, -scale) if scale < 0 else (0 * q, 1.0)
    P_q, P_k = masking.visibility.per_token
    case = Case.of(q, k, v, masking, num_tokens=(q.shape[1] // P_q, k.shape[1] // P_k), dropout=dropout_p > 0)
    name, masking = choose_backend(case, backend), masking.ruled_by(case.visibility)
    if name == FORMULA:
        return attend_with_weights(q, k, v, masking, scale=scale, dropout_p=dropout_p)[0]
    if name == "flash":
        packing = flash.pack(masking, q.shape[0], case.num_queries, case.num_keys, q.device)
        if packing is not None:
            return flash.attend(q, k, v, masking.visibility, packing, scale)
        if backend == "flash":
            raise ValueError(f"backend='flash' cannot do this: {flash.HOLES}")
        name = "flex"
    if name == "flex":
        return flex.attend(q, k, v, masking, scale)
    if case.is_plain:
        q, k, v = (widen_narrow_heads(t) for t in (q, k, v))
        if backend == "auto" and _gains_natively(case, q, k):
            return tiled_attention(q, k, v, masking, scale)[..., : case.head_dim]
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (B, H, N*P, D)
        causal = case.visibility.causal is not None
        grouped = False
        if q.shape[1] != k.shape[1]:  # under torch.compile the comparison may be symbolic, not a bool
            grouped = True
        out = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout_p, is_causal=causal, scale=scale, enable_gqa=grouped
        )
        return out.transpose(1, 2)[..., : case.head_dim]
    return tiled_attention(q, k, v, masking, scale)


def _gains_natively(case: Case, q: Tensor, k: Tensor) -> bool:
    """Whether plain self-attention is faster by our own CPU kernel than by SDPA, and nothing needs torch to see it."""
    if case.dropout or case.exporting or case.num_queries != case.num_keys:
        return False
    if q.shape[0] * q.shape[1] * q.shape[2] * k.shape[1] < _FEWEST_SCORES:
        return False
    if torch.compiler.is_compiling():
        return runs_natively(q)
    watched = torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None
    return not watched and runs_natively(q)
