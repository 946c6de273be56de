"""What the mechanisms share before they differ."""

import torch

from iha.ops.inputs import as_autocast, repeat_heads, rotate_tokens, zero_padding
from iha.ops.reference import rotate


def test_padding_is_zeroed_even_where_it_is_nan():
    q, k = torch.full((1, 2, 1, 2), torch.nan), torch.full((1, 3, 1, 2), torch.nan)
    q[:, 1], k[:, 1:] = 1, 2
    q, k = zero_padding(torch.tensor([[False, False, True]]), q, k)
    assert q.flatten().tolist() == [0, 0, 1, 1]  # q holds the last two tokens
    assert k.flatten().tolist() == [0, 0, 0, 0, 2, 2]


def test_heads_are_repeated_next_to_each_other():
    x = torch.tensor([10.0, 20.0]).view(1, 1, 2, 1)
    assert repeat_heads(x, 6).flatten().tolist() == [10, 10, 10, 20, 20, 20]


def test_queries_stand_at_the_end():
    q, k = torch.randn(1, 2, 1, 4, dtype=torch.float64), torch.randn(1, 5, 1, 4, dtype=torch.float64)
    got_q, got_k = rotate_tokens(10.0, q, k)
    torch.testing.assert_close(got_q, rotate(q, torch.tensor([3, 4]), 10.0), atol=1e-12, rtol=0)
    torch.testing.assert_close(got_k, rotate(k, torch.arange(5), 10.0), atol=1e-12, rtol=0)


def test_autocast_takes_everything_but_float64():
    single, double = torch.ones(1), torch.ones(1, dtype=torch.float64)
    assert [t.dtype for t in as_autocast(single, double)] == [torch.float32, torch.float64]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [t.dtype for t in as_autocast(single, double)] == [torch.bfloat16, torch.float64]
