"""Theorem 1, the lower bound; errata E16 and E17."""

import pytest
import torch

from iha.theory.filter_bound import (
    best_layer,
    check,
    iha_attention_rank,
    measured_residual,
    null_space_head,
    one_head_layer,
    operator_residual,
    power_matrix,
    rank_residual,
)
from iha.theory.polynomial_filters import augment, filter_bank, random_features, random_graph


def shift(N: int) -> torch.Tensor:
    return torch.eye(N, dtype=torch.float64).roll(1, 0)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_on_a_ring_h_heads_leave_a_share_of_the_powers(k) -> None:
    """The powers of a cyclic shift are orthogonal and equally long: H of k heads leave √(1 − H/k)."""
    for heads in range(1, k + 1):
        expected = (1 - heads / k) ** 0.5
        assert operator_residual(shift(12), k, heads) == pytest.approx(expected, abs=1e-14)
        assert measured_residual(shift(12), 2, k, heads) == pytest.approx(expected, abs=1e-14)


def test_the_best_layer_is_what_it_says_on_a_graph_without_symmetry() -> None:
    A = random_graph(10, seed=1)
    for heads in (1, 2, 3, 4):
        assert measured_residual(A, 2, 4, heads) == pytest.approx(operator_residual(A, 4, heads), abs=1e-13)
    assert operator_residual(A, 4, 3) > 1e-3
    assert best_layer(A, 2, 4, 3)[0].heads == 3


def test_no_random_layer_beats_the_bound() -> None:
    """Least squares over the output projection for random attention matrices never gets below the closed form."""
    A, k, heads = random_graph(8, seed=2), 4, 3
    target = power_matrix(A, k)
    bound = operator_residual(A, k, heads)
    for _ in range(50):
        basis = target @ torch.randn(k, heads, dtype=torch.float64)
        fit = basis @ torch.linalg.lstsq(basis, target).solution
        assert (fit - target).norm() / target.norm() >= bound - 1e-12


def test_rank_argument() -> None:
    A, X = random_graph(20, seed=0), random_features(20, 2, seed=0, batch=1)[0]
    assert torch.linalg.matrix_rank(filter_bank(A, X[None], 4)[0]) == 8
    assert rank_residual(A, X, 4, 3) > 1e-4
    assert rank_residual(A, X, 4, 4) == 0.0


def test_iha_with_h_heads_has_at_most_h_squared_attention_matrices() -> None:
    assert [iha_attention_rank(h, p, 12, 0) for h, p in ((1, 4), (2, 1), (2, 2), (2, 6), (3, 3))] == [1, 2, 4, 4, 9]


def test_e16_full_rank_is_not_enough() -> None:
    N, d, k = 8, 2, 5
    X = random_features(N, d, seed=0)
    eye = torch.eye(N, dtype=torch.float64)
    assert torch.linalg.matrix_rank(eye) == N
    assert torch.equal(one_head_layer(eye, d, k)(augment(X), score="linear"), filter_bank(eye, X, k))
    # A permutation of order two is full rank as well: two heads' worth of powers, however large k is.
    swap = eye[torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])]
    assert operator_residual(swap, k, 2) < 1e-15
    # And the rank equation is an inequality.
    assert torch.linalg.matrix_rank(filter_bank(eye, X, k)[0]) == d < min(N, k * d)


def test_e17_a_singular_attention_matrix_lets_c_be_anything() -> None:
    difference, smallest = null_space_head(10, 2, seed=0)
    assert difference < 1e-12
    assert smallest > 1e-3


def test_e17_one_head_cannot_span_two_powers() -> None:
    A = random_graph(8, seed=0)
    assert torch.linalg.matrix_rank(power_matrix(A, 2)) == 2  # I and A: no matrix is a multiple of both


def test_small_k_is_refused() -> None:
    with pytest.raises(ValueError, match="k = 1"):
        list(check(k=1))


@pytest.mark.parametrize("k", [2, 3, 6, 12])
def test_all_claims_hold(k) -> None:
    assert [claim for claim in check(k=k) if not claim.passed] == []
