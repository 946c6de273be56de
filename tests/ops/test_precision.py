import torch

from iha.ops.precision import wide


def test_sums_are_in_float32_at_least():
    assert wide(torch.bfloat16) == wide(torch.float16) == wide(torch.float32) == torch.float32
    assert wide(torch.float64) == torch.float64
