"""Attention over tokens with few distinct states: exact, and several times as fast as the general layers.

A token of relation composition is a bit at a position, so what enters the one attention layer is one of 2 N vectors,
whatever the example. Scores, their exponentials and the sums over pseudo-heads are functions of *states* and are
computed once per step for the whole batch. What is left per example is adding up the states it holds: for IHA one
vector per key instead of P x P products, for 2-simplicial attention one product over pairs instead of seven and no
exponential. The results equal those of the layers up to rounding (tested). A softmax is shifted by the largest score of
all states, not only of those present; a row whose sum then becomes too small for float32 raises an error.

The loops are C++ (state_kernels.cpp), compiled by the machine's own compiler when first used.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from iha.layers.base import SelfAttention
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.simplicial import SimplicialAttention
from iha.ops.mixing import collapse_pseudo_heads
from iha.ops.native import compiler, library, pointer

_SOURCE = Path(__file__).with_name("state_kernels.cpp")
_LARGEST_TABLE = 1 << 30  # bytes; the paper's longest task needs 256 MB
_LAYERS = (MultiHeadAttention, InterleavedHeadAttention, SimplicialAttention)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch, one after another without padding: F of them, in examples of different lengths."""

    state: Tensor  # (F,) int32: id * positions + position
    begin: Tensor  # (F,) int32, where the token's example begins
    length: Tensor  # (F,) int32, of the token's example
    order: Tensor  # (F,) int32, tokens sorted by state
    first: Tensor  # (S + 1,) int32, where in `order` each state begins
    positions: int

    @classmethod
    def of(cls, parts: Sequence[Tensor], vocabulary: int, positions: int) -> "Tokens":
        """From ids (B, N, 1) of one length each."""
        states, begins, lengths, offset = [], [], [], 0
        for ids in parts:
            B, N = ids.shape[:2]
            states.append((ids[..., 0] * positions + torch.arange(N)).flatten())
            begins.append((offset + N * torch.arange(B)).repeat_interleave(N))
            lengths.append(torch.full((B * N,), N))
            offset += B * N
        state = torch.cat(states)
        counts = torch.bincount(state, minlength=vocabulary * positions)
        first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        pieces = (state, torch.cat(begins), torch.cat(lengths), state.argsort(), first)
        state, begin, length, order, first = (piece.to(torch.int32).contiguous() for piece in pieces)
        return cls(state, begin, length, order, first, positions)

    def pointers(self) -> list[Any]:
        return [pointer(t) for t in (self.first, self.order, self.begin, self.length, self.state)]


def table_bytes(attention: SelfAttention, num_states: int) -> int:
    """Bytes of the table of weights of all pairs, or triples, of states."""
    keys = num_states**2 if isinstance(attention, SimplicialAttention) else num_states * attention.num_pseudo_heads**2
    return 4 * attention.num_heads * num_states * keys


def fits(attention: SelfAttention, num_states: int) -> bool:
    """Whether the kernels support this layer: bidirectional and global, without RoPE, QK-norm or grouped heads, with
    as many pseudo-keys as pseudo-queries and mixed heads as heads, with heads that fill vector registers, and with a
    table of moderate size."""
    if type(attention) not in _LAYERS or attention.head_dim % 8 or table_bytes(attention, num_states) > _LARGEST_TABLE:
        return False
    if attention.gate is not None or attention.exclusive:
        return False
    plain = attention.causal is None and attention.window is None and attention.rope_theta is None
    alike = attention.num_pseudo_keys is None and attention.num_mixed_heads == attention.num_heads
    return plain and alike and attention.q_norm is None and attention.num_kv_heads == attention.num_heads


def attend_states(attention: SelfAttention, x: Tensor, tokens: Tokens) -> Tensor:
    """Output (F, E) of `attention` for tokens whose states have the vectors x (S, E)."""
    if not fits(attention, len(x)):
        raise ValueError(f"no state kernel for {type(attention).__name__} as it is set up here")
    if x.dtype != torch.float32 or x.device.type != "cpu":
        raise ValueError(f"the state kernels take float32 on the CPU, got {x.dtype} on {x.device}")
    q, k, v = (t[0] for t in attention.project(x[None]))  # (S, H, D); of 2-simplicial attention k, v (S, H, 2D)
    scale = attention.head_dim**-0.5
    if isinstance(attention, SimplicialAttention):
        (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)
        k2, v2 = k2 + attention.key_offset, v2 + attention.value_offset
        heads = _Triples.apply(tokens, scale, *(t.transpose(0, 1).contiguous() for t in (q, k1, k2, v1, v2)))
    elif isinstance(attention, InterleavedHeadAttention):
        P = attention.num_pseudo_heads
        alphas = (attention.alpha_q, attention.alpha_k, attention.alpha_v)
        # (H, S, P, D): the pseudo-heads of the states
        mixed = [torch.einsum("mhp,smd->hspd", a, t).contiguous() for a, t in zip(alphas, (q, k, v), strict=True)]
        pseudo = _Pairs.apply(tokens, scale, *mixed)  # (F, H, P, D)
        virtual = pseudo.transpose(1, 2).flatten(0, 1)[None]  # (1, F*P, H, D)
        heads = collapse_pseudo_heads(virtual, attention.collapse, P)[0]
    else:
        heads = _Pairs.apply(tokens, scale, *(t.transpose(0, 1)[:, :, None].contiguous() for t in (q, k, v)))
    return attention.o_proj(heads.flatten(1))


class _Pairs(torch.autograd.Function):
    """q, k, v (H, S, P, D) of the states to the heads (F, H, P, D) of the tokens."""

    @staticmethod
    def forward(ctx, tokens: Tokens, scale: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        H, S, P, D = q.shape
        F = len(tokens.state)
        weights, totals, out = q.new_empty(H, S, P, _up(S * P)), q.new_empty(F, H, P), q.new_empty(F, H, P, D)
        done = _library(D, P).pairs_forward(
            H, S, ctypes.c_float(scale), *tokens.pointers(), *map(pointer, (q, k, v, weights, totals, out))
        )
        _check(done)
        ctx.tokens, ctx.scale = tokens, scale
        ctx.save_for_backward(q, k, v, weights, totals, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        q, k, v, weights, totals, out = ctx.saved_tensors
        H, S, P, D = q.shape
        grads = [torch.zeros_like(t) for t in (q, k, v)]
        read = (q, k, v, weights, totals, out, grad.contiguous())
        _library(D, P).pairs_backward(
            H, S, ctypes.c_float(ctx.scale), *ctx.tokens.pointers(), *map(pointer, (*read, *grads))
        )
        return None, None, *grads


class _Triples(torch.autograd.Function):
    """q, k1, k2, v1, v2 (H, S, D) of the states to the heads (F, H, D) of the tokens."""

    @staticmethod
    def forward(ctx, tokens: Tokens, scale: float, *states: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        H, S, D = states[0].shape
        F = len(tokens.state)
        weights, totals = states[0].new_empty(H, S, S, _up(S)), states[0].new_empty(F, H)
        out = states[0].new_empty(F, H, D)
        length = tokens.length.long()
        place = length.cumsum(0) - length  # (F,) of each token's rows in `inner`
        inner = states[0].new_empty(int(length.sum()) * H * D) if any(ctx.needs_input_grad) else None
        pointers = map(pointer, (place, *states, weights, totals, inner, out))
        done = _library(D, 1).triples_forward(
            H, S, tokens.positions, ctypes.c_float(scale), *tokens.pointers(), *pointers
        )
        _check(done)
        ctx.tokens, ctx.scale = tokens, scale
        ctx.save_for_backward(*states, place, weights, totals, inner, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        *states, place, weights, totals, inner, out = ctx.saved_tensors
        H, S, D = states[0].shape
        grads = [torch.zeros_like(t) for t in states]
        tokens, read = ctx.tokens, (place, *states, weights, totals, inner, out, grad.contiguous())
        _library(D, 1).triples_backward(
            H, S, tokens.positions, ctypes.c_float(ctx.scale), *tokens.pointers(), *map(pointer, (*read, *grads))
        )
        return None, None, *grads


def _check(done: int) -> None:
    if not done:
        raise ValueError("scores of different states lie too far apart for one shift in float32: use kernels='layers'")


def _up(count: int) -> int:
    """Round up to whole blocks of keys, the layout of the kernels."""
    return -(-count // 16) * 16


def _library(D: int, P: int) -> ctypes.CDLL:
    """The kernels for heads of width D and P pseudo-heads."""
    if compiler() is None:
        raise ValueError("the state kernels need a C++ compiler (c++ or g++): use kernels='layers'")
    return library(_SOURCE, ("-ffast-math", "-funroll-loops"), D=D, P=P)
