"""Tiled attention on virtual sequences as a differentiable operator, where SDPA would need a mask tensor.

It is opaque to torch.compile, which would otherwise unroll the tiles and copy their overlapping views.
"""

from typing import Any

import torch
from torch import Tensor

from iha.ops.backends.tiles import Tiling, backward_tiles, forward_tiles
from iha.ops.masking import PACKED_LENGTH, PACKED_SCHEMA, Masking
from iha.ops.precision import wide


def tiled_attention(
    q: Tensor,  # (B, Nq*P_q, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N*P_k, G, D)
    v: Tensor,  # (B, N*P_k, G, D)
    masking: Masking,  # the caller zeroes k and v of padded tokens
    scale: float,
) -> Tensor:  # (B, Nq*P_q, H, D)
    out, _ = _forward(q, k, v, *masking.pack(), scale)
    return out


@torch.library.custom_op(
    "iha::tiled_attention",
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {PACKED_SCHEMA}, float scale) -> (Tensor, Tensor)",
)
def _forward(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    *packed, scale = options
    return forward_tiles(q, k, v, tiling_of(q, k, Masking.unpack(*packed)), scale)


@torch.library.custom_op(
    "iha::tiled_attention_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{PACKED_SCHEMA}, float scale) -> (Tensor, Tensor, Tensor)",
)
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *packed, scale = options
    # Autograd may pass an expanded scalar as grad, which the kernels cannot read: hence contiguous().
    tiling = tiling_of(q, k, Masking.unpack(*packed))
    grad_q, grad_k, grad_v = backward_tiles(grad.contiguous(), q, k, v, out, lse, tiling, scale)
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)


def tiling_of(q: Tensor, k: Tensor, masking: Masking) -> Tiling:
    P_q, P_k = masking.visibility.per_token
    N, Nq = k.shape[1] // P_k, q.shape[1] // P_q
    return Tiling(masking, (N - Nq, N), (0, N), batch=q.shape[0])


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    lse = q.new_empty(q.shape[:3], dtype=wide(q.dtype))
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
    return *grads, *([None] * (PACKED_LENGTH + 1))


_forward.register_autograd(_differentiate, setup_context=_save)
