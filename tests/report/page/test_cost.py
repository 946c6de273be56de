"""The curves of cost, against closed forms at the paper's size."""

import pytest

from iha.report.page.cost import LENGTHS, PAPER_LAYERS, PSEUDO_HEADS, cost_section

E, H = 2560, 20


def ratios(chart, series):
    return {(row[series], row["N"]): row["ratio"] for row in chart.spec["data"]["values"]}


def pairs(tokens: int, window: int | None = None) -> int:
    """Visible pairs of causal attention: a sum over queries."""
    return sum(min(i + 1, window or tokens) for i in range(tokens))


def test_global_iha_costs_p_squared_and_its_mixing():
    """Virtual causality sees (NP)(NP + 1)/2 of the (NP)² pairs; alpha and R are 3H²P + HP weights per token."""
    found = ratios(cost_section().charts[0], "layer")
    assert len(found) == len(LENGTHS) * len(PSEUDO_HEADS)
    D = E // H
    for P in PSEUDO_HEADS:
        for N in LENGTHS:
            attention = 4 * E * (N * P) * (N * P + 1) // 2
            mixing = 2 * D * (3 * H * H * P + H * P) * N
            wanted = (attention + mixing) / (4 * E * pairs(N))
            assert found[f"global IHA, P = {P}", N] == pytest.approx(wanted, rel=1e-9)


def test_the_schedule_has_one_global_layer_in_five_and_none_at_the_end():
    found = ratios(cost_section().charts[1], "P")
    assert {N for _, N in found} == set(LENGTHS)
    assert PAPER_LAYERS == 26
    # P = 1: 21 layers with a window of N/2 and mixing, 5 global ones.
    N, D = LENGTHS[0], E // H
    mixing = 2 * D * (3 * H * H + H) * N
    local = 4 * E * pairs(N, N // 2) + mixing
    wanted = (21 * local + 5 * 4 * E * pairs(N)) / (26 * 4 * E * pairs(N))
    assert found["P = 1", N] == pytest.approx(wanted, rel=1e-9)
