"""The precision of sums and softmax."""

import torch


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of softmax and of sums over tiles: at least float32."""
    return torch.promote_types(dtype, torch.float32)
