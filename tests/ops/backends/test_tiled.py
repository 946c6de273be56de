"""Tiled attention as an operator of torch."""

import pytest
import torch

from iha.ops.backends.formula import attend_with_weights
from iha.ops.backends.tiled import tiled_attention
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility


@pytest.mark.parametrize("P_k", [None, 3])
def test_tiled_attention_passes_torchs_own_checks_of_an_operator(P_k):
    rows = (12, *[6 * (P_k or 2)] * 2)
    q, k, v = (torch.randn(1, n, 2, 4, dtype=torch.float64, requires_grad=True) for n in rows)
    arguments = (q, k, v, "token", None, 2, P_k, torch.tensor([[True] * 5 + [False]]), None, 0.5)
    torch.library.opcheck(torch.ops.iha.tiled_attention.default, arguments)


def test_it_is_the_formula():
    q, k, v = (torch.randn(2, n, h, 4, dtype=torch.float64) for n, h in ((8, 4), (12, 2), (12, 2)))
    masking = Masking(Visibility("token", None, 2), None, torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]]))
    want, _ = attend_with_weights(q, k, v, masking, scale=0.5)
    torch.testing.assert_close(tiled_attention(q, k, v, masking, 0.5), want, atol=1e-12, rtol=0)
