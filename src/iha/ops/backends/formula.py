"""Attention by the plain formula, also returning the attention weights. All scores are in memory."""

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops.masking import Masking
from iha.ops.precision import wide


def attend_with_weights(
    q: Tensor,  # (B, Nq*P_q, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N*P_k, G, D), zeros where a token is padding
    v: Tensor,  # (B, N*P_k, G, D), zeros where a token is padding
    masking: Masking,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:  # (B, Nq*P_q, H, D) and (B, H, Nq*P_q, N*P_k)
    """The output of `iha.ops.backends.attention.attend` and the attention weights; each row of weights sums to 1.

    With dropout, weights are set to 0 with probability `dropout_p` and the others divided by 1 - `dropout_p`.
    """
    (P_q, P_k), H, G = masking.visibility.per_token, q.shape[2], k.shape[2]
    N, Nq = k.shape[1] // P_k, q.shape[1] // P_q
    k, v = (t.repeat_interleave(H // G, dim=2) for t in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k)  # (B, H, Nq*P_q, N*P_k)
    visible = masking.tile((N - Nq, N), (0, N), q.device)
    scores = scores.masked_fill(~visible.unsqueeze(1), -torch.inf)
    weights = scores.softmax(dim=-1, dtype=wide(q.dtype)).to(q.dtype)
    weights = F.dropout(weights, dropout_p) if dropout_p else weights
    return torch.einsum("bhij,bjhd->bihd", weights, v), weights
