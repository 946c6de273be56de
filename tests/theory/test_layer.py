"""A layer given by its weights: both operators agree on it, and what is counted is what is allocated."""

import pytest
import torch

from iha.theory.layer import Layer, identity_mixing, router_mixing, select_pseudo_head
from iha.theory.superset import random_layer


@pytest.mark.parametrize("mixing", [None, identity_mixing(3, 2), router_mixing(3)], ids=["mha", "identity", "router"])
@pytest.mark.parametrize("causal", [None, "token", "virtual"])
def test_the_fast_path_is_the_reference(mixing, causal) -> None:
    base = random_layer(3, 12, 4, seed=0)
    layer = Layer(base.w_q, base.w_k, base.w_v, mixing)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(layer.fast(x, causal=causal), layer(x, causal=causal), atol=1e-12, rtol=0)


def test_values_narrower_than_keys_are_filled_up_and_wider_ones_refused() -> None:
    base = random_layer(2, 8, 4, seed=1)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    narrow = Layer(base.w_q, base.w_k, base.w_v[..., :3])
    torch.testing.assert_close(narrow.fast(x), narrow(x), atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="5 against 4"):
        Layer(base.w_q, base.w_k, torch.zeros(2, 8, 5, dtype=torch.float64)).fast(x)


def test_the_count_is_of_the_tensors() -> None:
    base = random_layer(3, 12, 4, seed=0)
    assert base.count() == 3 * 3 * 12 * 4
    assert Layer(base.w_q, base.w_k, base.w_v, router_mixing(3)).count() == base.count() + 4 * 3**3


def test_r_reads_one_pseudo_head_of_its_own_head() -> None:
    collapse = select_pseudo_head(3, 2, 1)
    assert collapse.shape == (3, 6)
    assert [row.nonzero().flatten().tolist() for row in collapse] == [[1], [3], [5]]


def test_routers_send_every_key_to_every_head_and_one_query_to_its_own() -> None:
    mixing = router_mixing(3)
    for m in range(3):
        for h in range(3):
            assert mixing.alpha_q[m, h].tolist() == [float(m == h), 0.0, 0.0]
            assert mixing.alpha_k[m, h].tolist() == [float(m == j) for j in range(3)]
            assert torch.equal(mixing.alpha_v[m, h], mixing.alpha_k[m, h])
