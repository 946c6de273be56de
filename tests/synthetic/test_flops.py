"""FLOPs counted on the graph, against the formula."""

import pytest

from iha.synthetic.flops import forward_flops
from iha.synthetic.model import SyntheticModel
from iha.synthetic.tasks import TASKS


@pytest.mark.parametrize(("mechanism", "P"), [("mha", 1), ("iha", 1), ("iha", 4)])
def test_flops_by_formula(mechanism: str, P: int) -> None:
    N, E, H = 36, 32, 4
    model = SyntheticModel(TASKS["binary"], mechanism, width=E, num_heads=H, num_pseudo_heads=P)
    dense = 2 * N * (4 * E * E + 8 * E * E + E)  # projections, MLP, read-out
    attention = 2 * 2 * (N * P) ** 2 * E
    # Three alphas, as (P*H, H) matrices. A per-head R weighs features one by one, which is no matrix product.
    mixing = 3 * 2 * N * (P * H) * E if mechanism == "iha" else 0
    assert forward_flops(model, 6) == dense + attention + mixing


def test_real_features_are_counted_with_their_projection() -> None:
    """The polynomial task has no embedding table: N · d · E more, and read-out to k · d numbers."""
    N, E, H, d, k = 16, 32, 4, 2, 4
    model = SyntheticModel(TASKS["polynomial"], "mha", width=E, num_heads=H)
    dense = 2 * N * (d * E + 4 * E * E + 8 * E * E + E * k * d)
    assert forward_flops(model, 16) == dense + 2 * 2 * N * N * E
