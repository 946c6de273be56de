"""The plain formula with its weights."""

import torch

from iha.ops.backends.formula import attend_with_weights
from iha.ops.masking import Masking


def test_weights_sum_to_one_and_give_the_output():
    q, k, v = (torch.randn(2, n, h, 4, dtype=torch.float64) for n, h in ((6, 4), (10, 2), (10, 2)))
    masking = Masking.of("virtual", 2, num_pseudo_heads=2)
    out, weights = attend_with_weights(q, k, v, masking)
    assert weights.shape == (2, 4, 6, 10)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 6, dtype=q.dtype), atol=1e-12, rtol=0)
    assert torch.equal(weights > 0, masking.tile((2, 5), (0, 5), q.device)[:, None].expand_as(weights))
    want = torch.einsum("bhij,bjhd->bihd", weights, v.repeat_interleave(2, dim=2))
    torch.testing.assert_close(out, want, atol=1e-12, rtol=0)
