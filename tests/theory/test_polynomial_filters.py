"""Theorems 1 and 3, the constructions; errata E7, E14, E15, E18, E19, E24."""

import pytest
import torch

from iha.theory.polynomial_filters import (
    augment,
    ceil_sqrt,
    example_layer,
    filter_bank,
    iha_layer,
    iha_parameters,
    mha_layer,
    mha_parameters,
    powers,
    random_features,
    random_graph,
    relative_error,
    require_memory,
    run_error,
)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, 9, 10, 16, 17])
@pytest.mark.parametrize(("N", "d"), [(6, 1), (9, 2), (20, 3)])
def test_both_constructions_give_the_filter_bank(N, d, k) -> None:
    A, X = random_graph(N, seed=k), random_features(N, d, seed=1)
    mha, iha = mha_layer(A, d, k), iha_layer(A, d, k)
    assert mha.heads == k
    assert iha.heads == ceil_sqrt(k)
    assert run_error(mha, A, X, k) < 1e-14
    assert run_error(iha, A, X, k) < 1e-14
    assert mha.count() == mha_parameters(N, d, k) == 2 * N * (N + d) * k + d * (N + d) * k
    H = ceil_sqrt(k)
    assert iha.count() == iha_parameters(N, d, k) == 2 * N * (N + d) * H + d * (N + d) * H**2 + 4 * H**3


def test_integer_features_are_exact() -> None:
    A = random_graph(12, seed=0)
    X = torch.randint(-5, 6, (2, 12, 2)).double()
    assert run_error(iha_layer(A, 2, 9), A, X, 9) == 0.0


def test_extra_blocks_are_the_next_powers() -> None:
    A, X = random_graph(9, seed=3), random_features(9, 2, seed=0)
    out = iha_layer(A, 2, 6)(augment(X), score="linear")  # H = 3: nine blocks
    assert relative_error(out, filter_bank(A, X, 9), 2) < 1e-14


def test_ceil_sqrt_is_exact() -> None:
    assert all((h - 1) ** 2 < n <= h * h for n in range(1, 10_000) for h in (ceil_sqrt(n),))
    assert ceil_sqrt(10**30 + 1) == 10**15 + 1  # a float square root says 10**15


def test_powers_and_bank_agree_with_matrix_power() -> None:
    A, X = random_graph(7, seed=2), random_features(7, 2, seed=0)
    for i, M in enumerate(powers(A, 5)):
        assert torch.equal(M, torch.linalg.matrix_power(A, i))
        torch.testing.assert_close(filter_bank(A, X, 5)[..., 2 * i : 2 * i + 2], M @ X, rtol=1e-14, atol=1e-14)


def test_e7_the_printed_query_is_right_only_for_undirected_graphs() -> None:
    X = random_features(10, 2, seed=0)
    for directed, wrong in ((True, True), (False, False)):
        A = random_graph(10, seed=0, directed=directed)
        assert run_error(example_layer(A, 2, printed=False), A, X, 4) < 1e-14
        assert (run_error(example_layer(A, 2, printed=True), A, X, 4) > 0.1) == wrong


@pytest.mark.parametrize("causal", ["token", "virtual"])
def test_e14_a_causal_mask_keeps_only_earlier_edges(causal) -> None:
    A, X = random_graph(10, seed=0), random_features(10, 2, seed=0)
    assert run_error(iha_layer(A, 2, 4), A, X, 4, causal=causal) > 0.1
    assert run_error(mha_layer(A, 2, 4), A, X, 4, causal=causal) > 0.1
    lower = A.tril() + torch.eye(10, dtype=A.dtype)
    assert run_error(mha_layer(lower, 2, 4), lower, X, 4, causal=causal) < 1e-14
    # Token causality is enough for IHA; under virtual causality pseudo-query 1 does not see its own keys 2 … P.
    error = run_error(iha_layer(lower, 2, 4), lower, X, 4, causal=causal)
    assert error < 1e-14 if causal == "token" else error > 0.1


def test_e15_the_other_printed_counts_are_not_what_is_allocated() -> None:
    N, d, k = 12, 2, 9
    H, A = ceil_sqrt(k), random_graph(12, seed=0)
    first = 2 * N * (N + d) * H + d * (N + d) * H**2 + H**2
    assert iha_layer(A, d, k).count() - first == 4 * H**3 - H**2 != 0
    minimal = k * N * (N + d) + k * d * (N + d)
    assert mha_layer(A, d, k).count() - minimal == k * N * (N + d)


def test_e18_widths_and_softmax() -> None:
    A = random_graph(8, seed=0)
    assert iha_layer(A, 3, 2).w_v.shape == (2, 8 + 3, 6)  # d⌈√k⌉ = 6; the printed ⌈d√k⌉ is 5
    assert run_error(iha_layer(A, 2, 4), A, random_features(8, 2, 0), 4, score="softmax") > 0.1


def test_e19_fewer_parameters_only_from_three_powers_on() -> None:
    for N, d in ((32, 2), (64, 4), (256, 8)):
        cheaper = [k for k in range(1, 40) if iha_parameters(N, d, k) < mha_parameters(N, d, k)]
        assert cheaper == list(range(3, 40))
    # The bank ends at A^(k-1): k − 1 hops, not k.
    A = torch.zeros(4, 4, dtype=torch.float64)
    A[torch.arange(1, 4), torch.arange(3)] = 1  # a path: node 3 is three hops from node 0
    X = torch.zeros(1, 4, 1, dtype=torch.float64)
    X[0, 0] = 1
    assert filter_bank(A, X, 3)[0, 3].abs().max() == 0
    assert filter_bank(A, X, 4)[0, 3].abs().max() == 1


def test_e24_the_widths_are_not_those_of_definition_3() -> None:
    """Definition 3 has queries, keys and values all of width D/H; the constructions have N, N and d·H."""
    layer = iha_layer(random_graph(10, seed=0), 2, 9)
    E = layer.w_q.shape[1]
    assert E == 12
    assert layer.w_q.shape[-1] == layer.w_k.shape[-1] == 10 != E // layer.heads
    assert layer.w_v.shape[-1] == 6 != layer.w_k.shape[-1]


def test_sizes_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match=r"k = 10000000.*bytes"):
        require_memory(10**7)
