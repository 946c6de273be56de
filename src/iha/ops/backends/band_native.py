"""Attention over contiguous ranges of keys by our own C++ kernel (band_kernels.cpp): float32 on CPU.

torch's CPU kernel masks whole tiles by a bias and reaches half of the speed that its matrix products could have; ours
computes almost only what is visible (docs/lab-notes.md). It is compiled when first used. Without a compiler, or with
IHA_NATIVE=0 in the environment, `tiles.py` runs torch's kernel instead.
"""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from iha.ops.backends.kernels import fused_on
from iha.ops.native import kernels, pointer

Ranges = tuple[Tensor, Tensor]  # first and last key of every query row, (1 or B, rows) int32: [first, last)

_SOURCE = Path(__file__).with_name("band_kernels.cpp")
_WIDTHS = range(16, 257, 16)


def runs_natively(x: Tensor) -> bool:
    """Whether attention of heads like x (..., D) is computed by our own kernel, where masks are ranges."""
    if x.dtype != torch.float32 or not fused_on(x):
        return False
    # A compiler may know the width as a symbol only: compared with numbers, it becomes one.
    return any(x.shape[-1] == width and _has_kernel(width) for width in _WIDTHS)


def _has_kernel(head_dim: int) -> bool:
    return kernels(_SOURCE, head_dim) is not None


# What `torch.compiler.assume_constant_result` does, without the compiler that it imports: a second of every start.
_has_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


def kernel_used(head_dim: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> str:
    """ "native" or "torch": what computes windows and masks of heads of this kind here. Records of a bench state it."""
    return "native" if runs_natively(torch.empty(0, head_dim, dtype=dtype, device=device)) else "torch"


def forward_ranges(
    q: Tensor,  # (B, Q, H, D); of all tensors only the last two dimensions must be dense
    k: Tensor,  # (B, K, G, D)
    v: Tensor,  # (B, K, G, D)
    ranges: Ranges,
    scale: float,
    into: tuple[Tensor, Tensor],  # the output like q, and the log-sum-exp (B, Q, H)
) -> None:
    q, k, v = _dense(q, k, v)
    arguments = _sizes(q, k, v, *into, into[0], ranges), ctypes.c_float(scale)
    _native(q).band_forward(*arguments, *map(pointer, (q, k, v, *ranges, *into)))


def backward_ranges(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, ranges: Ranges, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from these keys alone; `out` and `lse` belong to whole rows."""
    grad, q, k, v, out = _dense(grad, q, k, v, out)
    grads = tuple(torch.empty(t.shape) for t in (q, k, v))
    arguments = _sizes(q, k, v, out, lse, grad, ranges), ctypes.c_float(scale)
    _native(q).band_backward(*arguments, *map(pointer, (grad, q, k, v, out, lse, *ranges, *grads)))
    return grads  # type: ignore[return-value]


def _native(q: Tensor) -> ctypes.CDLL:
    found = kernels(_SOURCE, q.shape[-1])
    assert found is not None
    return found


def _dense(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t if t.stride(3) == 1 and t.stride(2) == t.shape[3] else t.contiguous() for t in tensors)


def _sizes(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, grad: Tensor, ranges: Ranges) -> ctypes.Array:
    """`Sizes` of the C++ file."""
    B, Q, H, _ = q.shape
    strides = [stride for t in (q, k, v, out, lse, grad) for stride in t.stride()[:2]]
    numbers = [B, Q, k.shape[1], H, k.shape[2], torch.get_num_threads(), *strides, Q if len(ranges[0]) > 1 else 0]
    return (ctypes.c_int64 * len(numbers))(*numbers)
