"""Multi-head attention against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from iha.ops.multihead import multihead_attention


@pytest.mark.parametrize("G", [4, 2, 1])
def test_it_is_torchs_attention(G):
    q, k, v = (torch.randn(2, 9, h, 8, dtype=torch.float64) for h in (4, G, G))
    want = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True, enable_gqa=True)
    torch.testing.assert_close(multihead_attention(q, k, v), want.transpose(1, 2), atol=1e-12, rtol=0)


def test_values_must_be_shaped_as_keys():
    q = torch.zeros(1, 3, 2, 4)
    with pytest.raises(ValueError, match=r"v \(1, 3, 1, 4\)"):
        multihead_attention(q, q, q[:, :, :1])
