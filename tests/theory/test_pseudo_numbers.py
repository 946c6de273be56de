"""How many pseudo-queries and pseudo-keys the constructions need."""

from dataclasses import replace

import pytest
import torch

from iha.theory import pseudo_numbers
from iha.theory.cpm3 import Task
from iha.theory.cpm3_claims import count_error
from iha.theory.polynomial_filters import ceil_sqrt, filter_bank, iha_layer, random_features, random_graph, run_error
from iha.theory.pseudo_numbers import (
    attention_rank,
    cpm3_network,
    filter_layer,
    filter_parameters,
    one_query,
    query_collapse_error,
    random_mixing,
    tanh_error,
    without_unread_queries,
)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_claim_holds(seed) -> None:
    claims = list(pseudo_numbers.check(seed))
    assert [claim.claim for claim in claims if not claim.passed] == []
    assert {claim.theorem for claim in claims} == {"numbers"}


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9, 10, 16])
def test_e25_filters_with_one_pseudo_query(k) -> None:
    N, d, H = 9, 2, ceil_sqrt(k)
    A, X = random_graph(N, seed=k), random_features(N, d, seed=1)
    layer = filter_layer(A, d, k)
    assert layer.mixing.alpha_q.shape == (H, H, 1)
    assert layer.mixing.alpha_k.shape == (H, H, H)
    assert run_error(layer, A, X, k) < 1e-14
    assert layer.count() == filter_parameters(N, d, k)


def test_one_pseudo_key_less_is_not_enough() -> None:
    """The last pseudo-key makes the last power of every head: without it the bank is wrong."""
    A, X, k = random_graph(9, seed=0), random_features(9, 2, seed=1), 9
    layer = filter_layer(A, 2, k)
    fewer = replace(layer.mixing, alpha_k=layer.mixing.alpha_k[..., :2], alpha_v=layer.mixing.alpha_v[..., :2])
    assert run_error(replace(layer, mixing=fewer), A, X, k) > 0.1
    assert filter_bank(A, X, k).shape[-1] == 18
    assert attention_rank(3, 2, 12, seed=0) == 6 < k


def test_only_linear_attention_joins_pseudo_queries() -> None:
    assert query_collapse_error(3, 2) < 1e-12
    assert query_collapse_error(3, 3, causal="token", window=2) < 1e-12
    assert query_collapse_error(3, 3, score="softmax") > 0.05
    assert query_collapse_error(3, 3, score="hard") > 0.05
    assert query_collapse_error(3, 3, causal="virtual") > 0.05


def test_unread_pseudo_queries_are_removed_and_read_ones_stay() -> None:
    layer = iha_layer(random_graph(9, seed=0), 2, 9)
    assert without_unread_queries(layer).mixing.alpha_q.shape[-1] == 1
    layer.mixing.collapse.view(3, 3, 3)[0, 1, 2] = 0.5
    assert without_unread_queries(layer).mixing.alpha_q.shape[-1] == 2


def test_one_query_by_hand() -> None:
    mixing = random_mixing(2, 3, 2, seed=0)
    one = one_query(mixing)
    wanted = sum(mixing.alpha_q[:, 1, p] * mixing.collapse[1, p] for p in range(3))
    torch.testing.assert_close(one.alpha_q[:, 1, 0], wanted)
    assert one.collapse.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("fast", [False, True])
def test_cpm3_with_one_pseudo_query(fast) -> None:
    network = cpm3_network(10, Task(7, 16, largest=10))
    assert network.attention.mixing.alpha_q.shape[-1] == 1
    assert count_error(network, range(1, 11), seed=0, fast=fast) < 1e-9


@pytest.mark.parametrize("causal", [None, "token"])
@pytest.mark.parametrize("operator", pseudo_numbers.OPERATORS.values(), ids=pseudo_numbers.OPERATORS)
def test_strictness_with_one_pseudo_query(causal, operator) -> None:
    assert tanh_error(causal=causal, operator=operator) < 1e-12
