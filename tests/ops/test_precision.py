import torch

from iha.ops.precision import as_autocast, wide


def test_sums_are_in_float32_at_least():
    assert wide(torch.bfloat16) == wide(torch.float16) == wide(torch.float32) == torch.float32
    assert wide(torch.float64) == torch.float64


def test_autocast_takes_everything_but_float64():
    single, double = torch.ones(1), torch.ones(1, dtype=torch.float64)
    assert [t.dtype for t in as_autocast(single, double)] == [torch.float32, torch.float64]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [t.dtype for t in as_autocast(single, double)] == [torch.bfloat16, torch.float64]
