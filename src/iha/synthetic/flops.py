"""Floating-point operations of a model, counted on the real graph rather than by a formula per mechanism."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from iha.synthetic.model import SyntheticModel


@torch.no_grad()
def forward_flops(model: SyntheticModel, size: int) -> int:
    """Matrix products of one example's forward pass, multiplication and addition counted as two."""
    task = model.task
    fields, dtype = (len(task.vocabularies), torch.long) if task.vocabularies else (task.num_features, torch.float32)
    inputs = torch.zeros(1, task.length(size), fields, dtype=dtype)
    counter = FlopCounterMode(display=False)
    # The counter does not know the fused CPU kernel; as plain matrix products it sees attention too.
    with counter, sdpa_kernel(SDPBackend.MATH):
        model(inputs, size)
    return counter.get_total_flops()
