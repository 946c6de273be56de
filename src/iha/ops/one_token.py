"""One new token by our own C++ kernels (decoding_kernels.cpp): float32 on CPU, without gradients.

A decoding step reads every weight and the whole cache for one row of products. torch's matrix products read memory at
half the speed at which it can be read (docs/lab-notes.md) and spend more on calls than on arithmetic. Each function
returns None where it does not apply; the caller then uses torch.
"""

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from iha.ops.native import is_plain, kernels

_SOURCE = Path(__file__).with_name("decoding_kernels.cpp")
_ANY_WIDTH = 16  # the product with a matrix does not depend on the width of heads


@functools.cache
def _kernels(D: int) -> ctypes.CDLL | None:
    found = kernels(_SOURCE, D)
    if found is not None:  # so that numbers need not be wrapped at every call
        i, f, p = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
        found.matrix_vector.argtypes = (i, i, i, p, p, p, p)
        found.rms_norm.argtypes = (i, f, p, p, p)
        found.decode_interleaved.argtypes = (i, i, i, f, p, p, p, p, p, i, p)
    return found


def matrix_vector(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """`linear` of one row: x (..., columns) of one row, weight (rows, columns), bias (rows,): (..., rows)."""
    if not (is_plain(x, weight) if bias is None else is_plain(x, weight, bias)):
        return None
    found = _kernels(_ANY_WIDTH)
    if found is None:
        return None
    rows, columns = weight.shape
    if x.numel() != columns or not weight.is_contiguous() or not x.is_contiguous():
        return None
    out = torch.empty((*x.shape[:-1], rows))
    pointers = weight.data_ptr(), x.data_ptr(), _address(bias), out.data_ptr()
    found.matrix_vector(torch.get_num_threads(), rows, columns, *pointers)
    return out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor | None:
    """RMSNorm of one row: x (..., columns) of one row, weight (columns,). torch makes eight calls of it."""
    if not is_plain(x, weight) or x.numel() != weight.numel() or not x.is_contiguous():
        return None
    found = _kernels(_ANY_WIDTH)
    if found is None:
        return None
    out = torch.empty(x.shape)
    found.rms_norm(x.numel(), eps, x.data_ptr(), weight.data_ptr(), out.data_ptr())
    return out


def decode_interleaved(
    q: Tensor,  # (B, 1, H, D)
    k: Tensor,  # (B, G, T, D)
    v: Tensor,  # (B, G, T, D)
    mixing: tuple[
        Tensor, Tensor, Tensor, Tensor
    ],  # alpha_q (H, H', P_q), alpha_k and alpha_v (G, G', P_k), R (H', P_q)
    bias: Tensor | None,  # (1 or B, H'*P_q*P_k, T)
    rotary: tuple[Tensor, Tensor] | None,  # full cos and sin, (P, P, 1, D)
    scale: float,
) -> Tensor | None:  # (B, 1, H', D)
    tensors = (*mixing, *(rotary or ()))
    dense = tensors if bias is None else (bias, *tensors)
    if not is_plain(q, k, v, *dense) or q.shape[3] % 16 or k.stride(3) != 1 or v.stride(3) != 1:
        return None
    found = _kernels(q.shape[3])
    if found is None or not all(t.is_contiguous() for t in (q, *dense)):
        return None
    (H, M, P), (G, L, K) = mixing[0].shape, mixing[1].shape
    out = torch.empty(q.shape[0], 1, M, q.shape[3])
    numbers = [H, M, G, L, P, K, *(t.data_ptr() for t in tensors), *([] if rotary else [0, 0])]
    arguments = q.data_ptr(), _cache(k), _cache(v), _address(bias), _step(bias), out.data_ptr()
    sizes = torch.get_num_threads(), q.shape[0], k.shape[2]
    found.decode_interleaved(*sizes, scale, (ctypes.c_int64 * len(numbers))(*numbers), *arguments)
    return out


def _cache(x: Tensor) -> ctypes.Array:
    """`Cache` of the C++ file."""
    return (ctypes.c_int64 * 4)(x.data_ptr(), *x.stride()[:3])


def _address(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _step(bias: Tensor | None) -> int:
    return 0 if bias is None or len(bias) == 1 else bias.stride(0)
