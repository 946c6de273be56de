"""The C++ kernels of attention over token states (state_kernels.cpp) as functions that autograd knows.

They are compiled by the machine's own compiler when first used. torch's threads share the heads; no number depends on
how many they are.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from iha.ops.native import library, pointer

_SOURCE = Path(__file__).with_name("state_kernels.cpp")
# Sums in the order written: gcc turns chains of fused multiply-adds into trees of products and sums otherwise.
_FLAGS = ("-fopenmp", "-ffast-math", "-fno-associative-math")
_ROWS = 64  # products have a multiple of this many rows


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch, one after another: F of them, in examples of different lengths.

    Results have more rows, a multiple of 64, of which the last mean nothing: oneDNN compiles a matrix product for every
    new shape, which takes half as long as the product.
    """

    count: int  # F
    state: Tensor  # (rows,) int32: id * positions + position
    begin: Tensor  # (F,) int32, where the token's example begins
    length: Tensor  # (F,) int32, of the token's example
    order: Tensor  # (F,) int32, tokens sorted by state
    first: Tensor  # (S + 1,) int32, where in `order` each state begins
    positions: int
    pairs: int  # sum of the examples' squared lengths

    @classmethod
    def of(cls, parts: Sequence[Tensor], vocabulary: int, positions: int) -> "Tokens":
        """From ids (B, N, 1) of one length each."""
        states, begins, lengths, offset, pairs = [], [], [], 0, 0
        for ids in parts:
            B, N = ids.shape[:2]
            states.append((ids[..., 0] * positions + torch.arange(N)).flatten())
            begins.append((offset + N * torch.arange(B)).repeat_interleave(N))
            lengths.append(torch.full((B * N,), N))
            offset, pairs = offset + B * N, pairs + B * N * N
        state = torch.cat(states)
        counts = torch.bincount(state, minlength=vocabulary * positions)
        first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        pieces = (F.pad(state, (0, -offset % _ROWS)), torch.cat(begins), torch.cat(lengths), state.argsort(), first)
        state, begin, length, order, first = (piece.to(torch.int32).contiguous() for piece in pieces)
        return cls(offset, state, begin, length, order, first, positions, pairs)

    def empty(self, *shape: int) -> Tensor:
        """Room for (F, *shape) float32, with the further rows zero."""
        room = torch.empty(len(self.state), *shape)
        room[self.count :] = 0
        return room

    def arrays(self) -> tuple[Tensor, ...]:
        """In the order of the kernels' arguments."""
        return self.first, self.order, self.begin, self.length, self.state


@dataclass(frozen=True)
class _Meetings:
    """Which tokens of one state see a token of another, for all pairs of states (state_kernels.cpp)."""

    start: Tensor  # (S * S + 1,) int32
    who: Tensor  # (sum of lengths,) int32
    most: int  # tokens of one state

    @classmethod
    def of(cls, tokens: Tokens, S: int, kernels: ctypes.CDLL) -> "_Meetings":
        start, who = tokens.state.new_empty(S * S + 1), tokens.state.new_empty(tokens.pairs)
        most = kernels.meetings(S, *map(pointer, (*tokens.arrays(), start, who)))
        return cls(start, who, most)


class Pairs(torch.autograd.Function):
    """q, k, v (H, S, P, D) of the states to the heads (rows, H, P, D) of the tokens."""

    @staticmethod
    def forward(ctx, tokens: Tokens, scale: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        H, S, P, D = q.shape
        meetings = _Meetings.of(tokens, S, _library(D, P))
        tops, totals, out = tokens.empty(H, P), tokens.empty(H, P), tokens.empty(H, P, D)
        arrays = (*tokens.arrays(), meetings.start, q, k, v, tops, totals, out)
        numbers = (S, tokens.positions, ctypes.c_float(scale))
        _library(D, P).pairs_forward(H, *numbers, *map(pointer, arrays))
        ctx.tokens, ctx.scale, ctx.meetings = tokens, scale, meetings
        ctx.save_for_backward(q, k, v, tops, totals, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        q, k, v, tops, totals, out = ctx.saved_tensors
        H, S, P, D = q.shape
        grads = [torch.zeros_like(t) for t in (q, k, v)]
        tokens, meetings = ctx.tokens, ctx.meetings
        read = (tokens.first, tokens.order, meetings.start, meetings.who, q, k, v, tops, totals, out, grad.contiguous())
        numbers = (S, meetings.most, ctypes.c_float(ctx.scale))
        _library(D, P).pairs_backward(H, *numbers, *map(pointer, (*read, *grads)))
        return None, None, *grads


class Collapse(torch.autograd.Function):
    """Pseudo-heads (F, H, P, D) and R (H, H*P) to heads (F, H, D)."""

    @staticmethod
    def forward(ctx, pseudo: Tensor, R: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        F, H, P, D = pseudo.shape
        out = pseudo.new_empty(F, H, D)
        _library(D, P).collapse_forward(F, H, H * P, *map(pointer, (R, pseudo, out)))
        ctx.save_for_backward(pseudo, R)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        pseudo, R = ctx.saved_tensors
        F, H, P, D = pseudo.shape
        grads = torch.empty_like(pseudo), torch.empty_like(R)
        read = (R, pseudo, grad.contiguous())
        _library(D, P).collapse_backward(F, H, H * P, *map(pointer, (*read, *grads)))
        return grads


class GeluDot(torch.autograd.Function):
    """GELU(x) @ u for x (F, K) and u (K,): (F,)."""

    @staticmethod
    def forward(ctx, x: Tensor, u: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        x, u, out = x.contiguous(), u.contiguous(), x.new_empty(len(x))
        _library(16, 1).gelu_dot_forward(*x.shape, *map(pointer, (x, u, out)))
        ctx.save_for_backward(x, u)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        x, u = ctx.saved_tensors
        grads = torch.empty_like(x), torch.zeros_like(u)
        _library(16, 1).gelu_dot_backward(*x.shape, *map(pointer, (x, u, grad.contiguous(), *grads)))
        return grads


class Triples(torch.autograd.Function):
    """q, k1, k2, v1, v2 (H, S, D) of the states to the heads (rows, H, D) of the tokens.

    `window` is that of the second keys.
    """

    @staticmethod
    def forward(ctx, tokens: Tokens, scale: float, window: int, *states: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        H, S, D = states[0].shape
        meetings = _Meetings.of(tokens, S, _library(D, 1))
        tops, totals, out = tokens.empty(H), tokens.empty(H), tokens.empty(H, D)
        arrays = (*tokens.arrays(), meetings.start, *states, tops, totals, out)
        numbers = (S, tokens.positions, tokens.count, window, ctypes.c_float(scale))
        _library(D, 1).triples_forward(H, *numbers, *map(pointer, arrays))
        ctx.tokens, ctx.scale, ctx.window, ctx.meetings = tokens, scale, window, meetings
        ctx.save_for_backward(*states, tops, totals, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        *states, tops, totals, out = ctx.saved_tensors
        H, S, D = states[0].shape
        grads = [torch.zeros_like(t) for t in states]
        tokens, meetings = ctx.tokens, ctx.meetings
        read = (*tokens.arrays(), meetings.start, *states, tops, totals, out, grad.contiguous())
        numbers = (S, tokens.positions, tokens.count, ctx.window, meetings.most, ctypes.c_float(ctx.scale))
        _library(D, 1).triples_backward(H, *numbers, *map(pointer, (*read, *grads)))
        return None, None, None, *grads


def _library(D: int, P: int) -> ctypes.CDLL:
    """The kernels for heads of width D and P pseudo-heads."""
    try:
        return library(_SOURCE, _FLAGS, D=D, P=P)
    except ValueError as error:
        raise ValueError(f"{error}: use kernels='layers'") from error
