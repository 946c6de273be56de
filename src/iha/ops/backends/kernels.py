"""Attention of one tile with its log-sum-exp, forward and backward.

SDPA's public function neither returns the log-sum-exp nor takes one back, and a tile's backward needs it. On CPU
these are the two operators behind `scaled_dot_product_attention`; elsewhere the same formulas in plain torch.
All tensors are (B, H, L, D); `bias` is added to the scaled scores, -inf where a query may not look.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops.precision import wide

_NARROWEST = 16  # features of a head for which the CPU kernel's matrix products fill a vector register


def fused_on(x: Tensor) -> bool:
    """Whether the fused CPU kernel is to be used; not where `sdpa_kernel` asks for plain matrix products."""
    # (The compiler cannot ask, and a compiled graph is not for counting.)
    return x.device.type == "cpu" and (torch.compiler.is_compiling() or torch.backends.cuda.flash_sdp_enabled())


def widen_narrow_heads(x: Tensor) -> Tensor:
    """(..., D) with D < 16 filled up with zeros on CPU: the same scores and values, up to 1.6 times as fast."""
    narrow = _NARROWEST - x.shape[-1]
    return F.pad(x, (0, narrow)) if narrow > 0 and x.dtype == torch.float32 and fused_on(x) else x


def attend_tile(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """out (B, H, Lq, D) and log-sum-exp (B, H, Lq); every row must see at least one key."""
    if q.device.type == "cpu":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return flash(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
    return attend_tile_by_formula(q, k, v, bias, scale)


def attend_tile_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from this tile alone.

    `out` and `lse` are those of the whole rows, so the gradients of the tiles of a row add up exactly.
    """
    if q.device.type == "cpu":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return flash(grad, q, k, v, out, lse, 0.0, False, attn_mask=bias, scale=scale)
    return attend_tile_backward_by_formula(grad, q, k, v, out, lse, bias, scale)


def attend_tile_by_formula(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, bias, scale)  # (B, H, Lq, Lk)
    lse = scores.logsumexp(dim=-1)  # (B, H, Lq)
    weights = (scores - lse[..., None]).exp()
    return (weights.to(v.dtype) @ v), lse


def attend_tile_backward_by_formula(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    weights = (_scores(q, k, bias, scale) - lse[..., None]).exp()  # (B, H, Lq, Lk)
    delta = (grad.to(weights.dtype) * out.to(weights.dtype)).sum(dim=-1, keepdim=True)  # (B, H, Lq, 1)
    grad_weights = (grad @ v.mT).to(weights.dtype)
    grad_scores = (scale * weights * (grad_weights - delta)).to(q.dtype)
    return grad_scores @ k, grad_scores.mT @ q, weights.to(grad.dtype).mT @ grad


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    # Softmax in float32 at least, as the fused kernels do.
    scores = scale * (q @ k.mT).to(wide(q.dtype))
    return scores if bias is None else scores + bias
