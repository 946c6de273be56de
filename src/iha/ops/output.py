"""What may follow attention before the output projection: a gate, and the removal of a token's own value.

Both act on the heads' outputs alone, so every mechanism can have them.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops.inputs import repeat_heads
from iha.ops.precision import wide

Gate = Literal["headwise", "elementwise"]
GATES: tuple[Gate, ...] = get_args(Gate)


def gate_heads(
    out: Tensor,  # (B, N, H, D), of attention
    scores: Tensor,  # (B, N, H) headwise or (B, N, H*D) elementwise: the gate's projection of the hidden state
) -> Tensor:  # (B, N, H, D)
    """Gated attention (arXiv 2505.06708): Y' = Y ⊙ σ(X Wθ), one gate per head or one per feature of every head."""
    return out * scores.view(*out.shape[:3], -1).sigmoid()


def exclude_own_value(
    out: Tensor,  # (B, N, H, D), of attention
    own: Tensor,  # (B, N, G, D), the value of each query's own token; query head h has that of KV head h*G // H
) -> Tensor:  # (B, N, H, D)
    """Exclusive self-attention (arXiv 2603.09078): z = y - (yᵀv) v / ‖v‖². A zero value removes nothing."""
    unit = F.normalize(repeat_heads(own, out.shape[2]).to(wide(out.dtype)), dim=-1)
    along = torch.linalg.vecdot(out.to(unit.dtype), unit).unsqueeze(-1)  # (B, N, H, 1)
    return (out - along * unit).to(out.dtype)
