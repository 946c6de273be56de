"""Attention of one tile with its log-sum-exp, forward and backward.

The backward pass of a tile needs the log-sum-exp, which SDPA's public function neither returns nor accepts. On CPU we
call the two operators behind `scaled_dot_product_attention`; on other devices, the same formulas in plain torch.
All tensors are (B, H, L, D). `bias` is added to the scaled scores; it is -inf where a query does not see a key.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops.precision import wide

_NARROWEST = 16  # the smallest head width at which the CPU kernel's matrix products fill a vector register


def fused_on(x: Tensor) -> bool:
    """Whether to use the fused CPU kernel: not if `sdpa_kernel` has disabled it in favour of plain matrix products."""
    # The setting cannot be read while compiling. Only FLOP counting disables the kernel, and it does not compile.
    return x.device.type == "cpu" and (torch.compiler.is_compiling() or torch.backends.cuda.flash_sdp_enabled())


def widen_narrow_heads(x: Tensor) -> Tensor:
    """Pad x (..., D) with D < 16 to 16 features with zeros, on CPU: the same result, up to 1.6 times as fast."""
    narrow = _NARROWEST - x.shape[-1]
    return F.pad(x, (0, narrow)) if narrow > 0 and x.dtype == torch.float32 and fused_on(x) else x


def attend_tile(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """The output (B, H, Lq, D) and the log-sum-exp (B, H, Lq). Every row must see at least one key."""
    if q.device.type == "cpu":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return flash(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
    return attend_tile_by_formula(q, k, v, bias, scale)


def attend_tile_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from this tile alone.

    `out` and `lse` belong to whole rows, over all tiles. The gradients of a row's tiles therefore add up exactly.
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
    # Softmax in at least float32, as in the fused kernels.
    scores = scale * (q @ k.mT).to(wide(q.dtype))
    return scores if bias is None else scores + bias
