"""Differential attention against Microsoft's formula, written out pair by pair."""

import math

import pytest
import torch

from iha.ops.differential import differential_attention, lambda_from, lambda_init_at


@pytest.mark.parametrize(("H", "G"), [(4, 4), (8, 4), (4, 2)])
def test_agrees_with_the_formula_pair_by_pair(H: int, G: int) -> None:
    """Pairs of adjacent heads; pair p reads the two key heads and the value head of key/value pair p·G // H.

    This is `multihead_flashdiff_1.py`. The naive `multihead_diffattn.py` repeats single key heads under grouping, so
    that both maps of a pair read the *same* key head; without grouping the two agree.
    """
    B, N, D = 2, 7, 6
    q, k = torch.randn(B, N, H, D, dtype=torch.float64), torch.randn(B, N, G, D, dtype=torch.float64)
    v, weight = torch.randn(B, N, G // 2, 2 * D, dtype=torch.float64), torch.rand(2 * D, dtype=torch.float64)
    lambda_, lambda_init = torch.tensor(0.47, dtype=torch.float64), 0.2
    found = differential_attention(q, k, v, lambda_, weight, lambda_init=lambda_init)
    assert found.shape == (B, N, H // 2, 2 * D)
    for b in range(B):
        for p in range(H // 2):
            pair = p * G // H
            for i in range(N):
                rows = []
                for member in (0, 1):
                    logits = k[b, : i + 1, 2 * pair + member] @ q[b, i, 2 * p + member] / math.sqrt(D)
                    rows.append(torch.softmax(logits, dim=0) @ v[b, : i + 1, pair])
                out = rows[0] - 0.47 * rows[1]
                out = out / torch.sqrt((out**2).mean() + 1e-5) * weight * (1 - lambda_init)
                torch.testing.assert_close(found[b, i, p], out, atol=1e-12, rtol=0)


def test_lambda() -> None:
    assert lambda_init_at(0) == pytest.approx(0.2)
    assert lambda_init_at(1) == pytest.approx(0.35550906759)
    assert lambda_init_at(100) == pytest.approx(0.8)
    a, b, c, d = (torch.randn(5, dtype=torch.bfloat16) for _ in range(4))
    found = lambda_from(a, b, c, d, 0.2)
    assert found.dtype == torch.float32
    wanted = math.exp((a.float() @ b.float()).item()) - math.exp((c.float() @ d.float()).item()) + 0.2
    assert found.item() == pytest.approx(wanted, rel=1e-5)


def test_lambda_zero_is_one_normalised_attention() -> None:
    q, k = (torch.randn(1, 9, 2, 4, dtype=torch.float64) for _ in range(2))
    v = torch.randn(1, 9, 1, 8, dtype=torch.float64)
    ones = torch.ones(8, dtype=torch.float64)
    found = differential_attention(q, k, v, torch.tensor(0.0, dtype=torch.float64), ones, lambda_init=0.0)
    plain = torch.nn.functional.scaled_dot_product_attention(q[:, :, 0], k[:, :, 0], v[:, :, 0], is_causal=True)
    torch.testing.assert_close(found[:, :, 0], torch.nn.functional.rms_norm(plain, (8,), eps=1e-5), atol=1e-12, rtol=0)


def test_bad_pairs_are_named() -> None:
    lambda_, weight = torch.tensor(0.1), torch.ones(8)
    q, v = torch.randn(1, 4, 3, 4), torch.randn(1, 4, 1, 8)
    with pytest.raises(ValueError, match="3 heads"):
        differential_attention(q, q, v, lambda_, weight, lambda_init=0.2)
    q = torch.randn(1, 4, 4, 4)
    with pytest.raises(ValueError, match=r"v must be.*\(1, 4, 4, 4\)"):
        differential_attention(q, q, q, lambda_, weight, lambda_init=0.2)
    with pytest.raises(ValueError, match=r"norm_weight.*\(7,\)"):
        differential_attention(q, q, torch.randn(1, 4, 2, 8), lambda_, weight[:7], lambda_init=0.2)
    with pytest.raises(ValueError, match="-1"):
        lambda_init_at(-1)
    with pytest.raises(ValueError, match="quick"):
        differential_attention(q, q, torch.randn(1, 4, 2, 8), lambda_, weight, lambda_init=0.2, backend="quick")
