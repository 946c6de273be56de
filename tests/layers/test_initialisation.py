"""How alpha and R start, and what that decides."""

import pytest
import torch
import torch.nn.functional as F

import iha

MIXING = ("alpha_q", "alpha_k", "alpha_v", "collapse")


def layer(
    init: str, causal: str | None, P: int = 3, collapse: str = "per_head", **options
) -> iha.InterleavedHeadAttention:
    return iha.InterleavedHeadAttention(
        16, 4, P, causal=causal, init=init, collapse=collapse, rope_positions="token", dtype=torch.float64, **options
    )


def multihead(attention: iha.InterleavedHeadAttention, x: torch.Tensor, rope_theta: float | None) -> torch.Tensor:
    """The layer's projections with plain multi-head attention between them."""
    q, k, v = (
        p(x).unflatten(-1, (-1, attention.head_dim)) for p in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if rope_theta is not None:
        positions = torch.arange(x.shape[1])
        q, k = (iha.reference.rotate(t, positions, rope_theta) for t in (q, k))
    distance = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    window = x.shape[1] if attention.window is None else attention.window
    mask = (distance.abs() if attention.causal is None else distance) < window
    if attention.causal is not None:
        mask &= distance >= 0
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
    return attention.o_proj(out.transpose(1, 2).flatten(2))


def gradients(
    attention: iha.InterleavedHeadAttention, x: torch.Tensor, target: torch.Tensor
) -> dict[str, torch.Tensor]:
    attention.zero_grad()
    (attention(x) - target).square().sum().backward()
    return {name: getattr(attention, name).grad for name in MIXING}


def spread(t: torch.Tensor) -> float:
    """How far the pseudo-heads, the last axis, are apart."""
    return (t - t.mean(dim=-1, keepdim=True)).abs().max().item()


@pytest.mark.parametrize("rope_theta", [None, 100.0])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("collapse", ["per_head", "full"])
@pytest.mark.parametrize("G", [4, 2])
@pytest.mark.parametrize("causal", ["virtual", "token", None])
def test_warm_start_is_exactly_multi_head_attention(causal, G, collapse, window, rope_theta):
    """Virtual windows too: i - j < W*P from i = n*P + P - 1 reaches back to the first copy of token n - W + 1."""
    attention = layer("warm_start", causal, 3, collapse, num_kv_heads=G, window=window, rope_theta=rope_theta)
    x = torch.randn(2, 11, 16, dtype=torch.float64)
    torch.testing.assert_close(attention(x), multihead(attention, x, rope_theta), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("P", "P_k"), [(1, 3), (3, 1), (2, 3)])
def test_warm_start_is_exact_with_other_numbers_of_pseudo_keys(P, P_k):
    attention = layer("warm_start", "token", P, num_kv_heads=2, num_pseudo_keys=P_k, window=4, rope_theta=100.0)
    x = torch.randn(2, 11, 16, dtype=torch.float64)
    torch.testing.assert_close(attention(x), multihead(attention, x, 100.0), atol=1e-12, rtol=0)


@pytest.mark.parametrize("init", ["identity", "one_hot"])
def test_collapse_averages_the_pseudo_queries_whatever_the_number_of_keys(init):
    attention = layer(init, "token", 2, num_pseudo_keys=3)
    torch.testing.assert_close(attention.collapse.detach(), torch.full((4, 2), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("causal", ["virtual", "token", None])
def test_warm_start_tells_pseudo_heads_apart_from_the_first_gradient(causal):
    attention = layer("warm_start", causal)
    x, target = torch.randn(2, 2, 11, 16, dtype=torch.float64)
    grads = gradients(attention, x, target)
    assert spread(grads["alpha_k"]) > 1e-3
    assert spread(grads["alpha_q"]) > 1e-3


@pytest.mark.parametrize("causal", ["token", None])
def test_identity_with_uniform_collapse_never_tells_them_apart(causal):
    attention = layer("identity", causal)
    x, target = torch.randn(2, 2, 11, 16, dtype=torch.float64)
    optimiser = torch.optim.Adam(attention.parameters(), lr=0.01)
    start = attention.alpha_k.detach().clone()
    for _ in range(50):
        grads = gradients(attention, x, target)
        optimiser.step()
        # Rounding is the only difference: gradients are of order 0.1 and more.
        assert all(spread(grads[name]) < 1e-10 for name in MIXING)
    assert (attention.alpha_k - start).abs().max() > 0.1  # it learned
    assert all(spread(getattr(attention, name)) < 1e-6 for name in MIXING)  # as one head, three times


@pytest.mark.parametrize("init", ["random", "orthogonal", "one_hot", "warm_start"])
def test_the_others_learn_apart(init):
    attention = layer(init, "token")
    x, target = torch.randn(2, 2, 11, 16, dtype=torch.float64)
    optimiser = torch.optim.Adam(attention.parameters(), lr=0.01)
    before = {name: spread(getattr(attention, name)) for name in MIXING}
    for _ in range(50):
        gradients(attention, x, target)
        optimiser.step()
    assert all(spread(getattr(attention, name)) > before[name] + 1e-3 for name in ("alpha_q", "alpha_k", "alpha_v"))


def test_one_hot_routes_every_head_to_every_head():
    attention = layer("one_hot", "virtual", P=4)
    routed = attention.alpha_k.abs() > 0.5
    assert torch.equal(routed.sum(0), torch.ones(4, 4, dtype=torch.long))  # one source a pseudo-head
    assert torch.equal(routed.sum(2), torch.ones(4, 4, dtype=torch.long))  # each source once over the pseudo-heads


def test_orthogonal_mixes_are_rotations():
    alpha = layer("orthogonal", "virtual").alpha_q.detach()
    for p in range(3):
        product = alpha[:, :, p].T @ alpha[:, :, p]
        torch.testing.assert_close(product, torch.eye(4, dtype=torch.float64), atol=1e-6, rtol=0)


def test_random_keeps_the_variance_of_heads():
    attention = iha.InterleavedHeadAttention(64, 64, 16, init="random")
    assert attention.alpha_q.square().sum(0).mean().item() == pytest.approx(1, rel=0.1)
    assert attention.collapse.square().sum(1).mean().item() == pytest.approx(1, rel=0.2)
