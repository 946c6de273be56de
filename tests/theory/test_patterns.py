"""Attention patterns counted on real maps; erratum E25."""

import pytest
import torch

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.theory.patterns import attention_maps, check, distinct, effective_matrices, random_maps, rank


def test_the_maps_are_the_blocks_of_the_softmax() -> None:
    """Against the definition written out: one softmax over the N·P keys, cut into P blocks."""
    H, P, N, D = 3, 2, 5, 8
    q, k = torch.randn(2, 1, N, H, D, dtype=torch.float64)
    alpha_q, alpha_k = torch.randn(2, H, H, P, dtype=torch.float64)
    for operator in (reference.interleaved_head_attention, interleaved_head_attention):
        maps = attention_maps(q, k, alpha_q, alpha_k, operator=operator, causal=None)
        for h in range(H):
            pq, pk = (torch.einsum("mp,nmd->pnd", a[:, h], t[0]) for a, t in ((alpha_q, q), (alpha_k, k)))
            for p in range(P):
                scores = torch.cat([pq[p] @ pk[r].T for r in range(P)], dim=1) / D**0.5  # (N, P*N)
                expected = scores.softmax(-1).unflatten(1, (P, N)).transpose(0, 1)
                torch.testing.assert_close(maps[h, p], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("H", "P"), [(2, 2), (4, 2), (4, 4), (2, 3)])
def test_p_squared_patterns_per_head(H, P) -> None:
    maps = random_maps(H, P, N=8)
    assert all(distinct(m) == rank(m) == P * P for m in maps)
    assert distinct(maps) == H * P * P
    assert distinct(random_maps(H, 1, N=8)) == H


def test_equal_pseudo_heads_give_one_pattern() -> None:
    """The count can fail: identical pseudo-heads are P² copies of one map."""
    q, k = torch.randn(2, 1, 6, 2, 6, dtype=torch.float64)
    alpha = torch.eye(2, dtype=torch.float64)[:, :, None].repeat(1, 1, 3)
    maps = attention_maps(q, k, alpha, alpha, operator=reference.interleaved_head_attention, causal=None)
    assert [distinct(m) for m in maps] == [1, 1]
    assert [rank(m) for m in maps] == [1, 1]


@pytest.mark.parametrize(("H", "P"), [(1, 3), (2, 2), (2, 4), (3, 2), (4, 3)])
def test_e25_without_softmax(H, P) -> None:
    maps = random_maps(H, P, score="linear", N=10)
    assert all(rank(m) == min(H, P) ** 2 for m in maps)
    assert rank(maps) == (H * H if P > 1 else H) <= H * P * P


def test_e25_the_collapse_leaves_p_matrices() -> None:
    maps = random_maps(3, 4, N=8)
    after = effective_matrices(maps, torch.randn(3, 4, dtype=torch.float64))
    assert [rank(m) for m in after] == [4, 4, 4]


def test_all_claims_hold() -> None:
    assert [claim for claim in check() if not claim.passed] == []
