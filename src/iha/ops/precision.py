"""The precision of a computation: autocast's dtype for the inputs, at least float32 for sums and softmax."""

import torch
from torch import Tensor


def as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast to autocast's dtype if autocast is enabled, as torch does for its own attention; float64 stays float64."""
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t if t.dtype == torch.float64 else t.to(dtype) for t in tensors)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of softmax and of sums over tiles: at least float32."""
    return torch.promote_types(dtype, torch.float32)
