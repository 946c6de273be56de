"""Tiled attention as a differentiable operator on virtual sequences, for what no fused kernel takes without a mask.

Opaque to torch.compile, which would otherwise unroll the tiles and copy their overlapping views.
"""

import torch
from torch import Tensor

from iha.ops.tiles import Tiling, backward_tiles, forward_tiles
from iha.ops.visibility import Causality, Visibility


def masked_attention(
    q: Tensor,  # (B, Nq*P, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N*P, G, D)
    v: Tensor,  # (B, N*P, G, D)
    visibility: Visibility,
    key_padding_mask: Tensor | None,  # (B, N) bool; the caller zeroes k and v of padded tokens
    document_ids: Tensor | None,  # (B, N) int
    scale: float,
) -> Tensor:  # (B, Nq*P, H, D)
    causal, window, P = visibility.causal, visibility.window, visibility.num_pseudo_heads
    out, _ = _forward(q, k, v, causal, window, P, key_padding_mask, document_ids, scale)
    return out


@torch.library.custom_op("iha::masked_attention", mutates_args=())
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None,
    window: int | None,
    num_pseudo_heads: int,
    key_padding_mask: Tensor | None,
    document_ids: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    tiling = _tiling(q, k, causal, window, num_pseudo_heads, key_padding_mask, document_ids)
    return forward_tiles(q, k, v, tiling, scale)


@torch.library.custom_op("iha::masked_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: str | None,
    window: int | None,
    num_pseudo_heads: int,
    key_padding_mask: Tensor | None,
    document_ids: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    tiling = _tiling(q, k, causal, window, num_pseudo_heads, key_padding_mask, document_ids)
    # Autograd may hand over an expanded scalar, which the kernels cannot read.
    grad_q, grad_k, grad_v = backward_tiles(grad.contiguous(), q, k, v, out, lse, tiling, scale)
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)


def _tiling(
    q: Tensor,
    k: Tensor,
    causal: str | None,
    window: int | None,
    P: int,
    key_padding_mask: Tensor | None,
    document_ids: Tensor | None,
) -> Tiling:
    N, Nq = k.shape[1] // P, q.shape[1] // P
    rule = Visibility(causality(causal), window, P)
    return Tiling(rule, (N - Nq, N), (0, N), key_padding_mask, document_ids, batch=q.shape[0])


def causality(name: str | None) -> Causality:
    """Operators take plain strings."""
    assert name in ("virtual", "token", None), name
    return name  # type: ignore[return-value]


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    lse = q.new_empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
    return torch.empty_like(q, memory_format=torch.contiguous_format), lse


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *options: object) -> tuple[Tensor, Tensor, Tensor]:
    def like(t: Tensor) -> Tensor:
        return torch.empty_like(t, memory_format=torch.contiguous_format)

    return like(q), like(k), like(v)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *options, key_padding_mask, document_ids, scale = inputs
    ctx.save_for_backward(q, k, v, *output, key_padding_mask, document_ids)
    ctx.options, ctx.scale = options, scale  # type: ignore[attr-defined]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, key_padding_mask, document_ids = ctx.saved_tensors  # type: ignore[attr-defined]
    grads = _backward(grad, *tensors, *ctx.options, key_padding_mask, document_ids, ctx.scale)  # type: ignore[attr-defined]
    return *grads, None, None, None, None, None, None


_forward.register_autograd(_differentiate, setup_context=_save)
