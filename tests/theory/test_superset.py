"""Theorem 2, inclusion, against PyTorch's own attention; errata E2 and E13."""

import pytest
import torch

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.theory.layer import Layer, identity_mixing, select_pseudo_head
from iha.theory.superset import folding_error, inclusion_error, multi_head_attention, random_layer

OPERATORS = {"reference": reference.interleaved_head_attention, "fast": interleaved_head_attention}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("rope", [None, "token"])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("pseudo_heads", [1, 2, 5])
@pytest.mark.parametrize("causal", [None, "token"])
def test_every_pseudo_head_gives_mha_when_all_copies_are_visible(causal, pseudo_heads, window, rope, operator) -> None:
    for select in range(pseudo_heads):
        error = inclusion_error(
            causal, select, pseudo_heads=pseudo_heads, window=window, rope_positions=rope, operator=OPERATORS[operator]
        )
        assert error < 1e-13


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("pseudo_heads", [1, 2, 3, 5])
@pytest.mark.parametrize("window", [None, 3])
def test_e2_under_virtual_causality_only_the_last_pseudo_head_gives_mha(pseudo_heads, window, operator) -> None:
    errors = [
        inclusion_error("virtual", p, pseudo_heads=pseudo_heads, window=window, operator=OPERATORS[operator])
        for p in range(pseudo_heads)
    ]
    assert errors[-1] < 1e-13
    assert all(error > 0.05 for error in errors[:-1])


@pytest.mark.parametrize("causal", [None, "token", "virtual"])
def test_e27_with_virtual_rope_no_pseudo_head_gives_mha(causal) -> None:
    for pseudo_heads in (2, 3):
        for select in range(pseudo_heads):
            assert inclusion_error(causal, select, pseudo_heads=pseudo_heads, rope_positions="virtual") > 0.01


def test_inclusion_with_the_per_head_collapse_and_grouped_keys() -> None:
    """R of Algorithm 1, (H, P), and fewer key/value heads than heads: the proof carries over."""
    H, G, P, N, D = 4, 2, 3, 6, 4
    q = torch.randn(1, N, H, D, dtype=torch.float64)
    k, v = torch.randn(2, 1, N, G, D, dtype=torch.float64)
    collapse = torch.zeros(H, P, dtype=torch.float64)
    collapse[:, -1] = 1
    alpha_q, alpha_kv = identity_mixing(H, P).alpha_q, identity_mixing(G, P).alpha_q
    out = interleaved_head_attention(q, k, v, alpha_q, alpha_kv, alpha_kv, collapse, causal="virtual")
    expected = multi_head_attention(q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2), causal=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-13)


def test_parameters_are_q_plus_4h2p() -> None:
    base = random_layer(5, 10, 2, seed=0)
    layer = Layer(base.w_q, base.w_k, base.w_v, identity_mixing(5, 3))
    assert layer.count() == 3 * 10 * 10 + 4 * 25 * 3
    assert base.count() == 3 * 10 * 10


def test_p_equal_to_one_folds_into_the_projections() -> None:
    assert folding_error() < 1e-13


def pseudo_major_causal(q, k, v, pseudo_heads: int, select: int):
    """Definition 3 read with the causal mask of Definition 1: stacked pseudo-head by pseudo-head."""
    stacked = [t.repeat(1, pseudo_heads, 1, 1) for t in (q, k, v)]
    return multi_head_attention(*stacked, causal=True).unflatten(1, (pseudo_heads, q.shape[1]))[:, select]


def test_e13_definition_3_and_algorithm_1_differ_under_a_causal_mask() -> None:
    P, N = 3, 5
    q, k, v = torch.randn(3, 1, N, 2, 4, dtype=torch.float64)
    mha = multi_head_attention(q, k, v, causal=True)
    # Pseudo-major, the first pseudo-head is right (so the printed proof is, there) …
    torch.testing.assert_close(pseudo_major_causal(q, k, v, P, 0), mha, rtol=0, atol=1e-13)
    # … but the others see the future: the first token's output moves when the last token's value does.
    late = v.clone()
    late[:, -1] += 1
    moved = pseudo_major_causal(q, k, late, P, 1)[:, 0] - pseudo_major_causal(q, k, v, P, 1)[:, 0]
    assert moved.abs().max() > 0.01
    # Token-major (Algorithm 1) nothing of it is seen.
    mixing = identity_mixing(2, P, select=1)
    outs = [interleaved_head_attention(q, k, t, *mixing.tensors(), causal="virtual")[:, 0] for t in (v, late)]
    torch.testing.assert_close(outs[0], outs[1], rtol=0, atol=0)


def test_e13_without_a_mask_the_stacking_order_does_not_matter() -> None:
    H, P, N, D = 3, 2, 5, 4
    q, k, v = torch.randn(3, 1, N, H, D, dtype=torch.float64)
    alpha_q, alpha_k, alpha_v = torch.randn(3, H, H, P, dtype=torch.float64)
    collapse = torch.randn(H, H * P, dtype=torch.float64)
    out = reference.interleaved_head_attention(q, k, v, alpha_q, alpha_k, alpha_v, collapse, causal=None)
    pq, pk, pv = (
        torch.einsum("mhp,bnmd->bpnhd", a, t).flatten(1, 2) for a, t in ((alpha_q, q), (alpha_k, k), (alpha_v, v))
    )
    stacked = multi_head_attention(pq, pk, pv, causal=False).unflatten(1, (P, N))  # (B, P, N, H, D)
    expected = torch.einsum("hmp,bpnmd->bnhd", collapse.unflatten(1, (H, P)), stacked)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_select_pseudo_head_reads_one_block() -> None:
    collapse = select_pseudo_head(2, 3, 1)
    assert collapse.tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]]
