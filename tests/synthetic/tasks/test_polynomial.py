"""The filter bank, by matrix powers in float64."""

import torch

from iha.synthetic.tasks import TASKS, generate
from iha.synthetic.tasks.polynomial import PolynomialFilter, filter_bank, powers


def test_polynomial_filter_in_float64() -> None:
    task = TASKS["polynomial"]
    assert isinstance(task, PolynomialFilter)
    for N, group in generate(TASKS["polynomial"], "train", 0, 40).items():
        A = task.graph(N)
        assert torch.allclose(A.sum(1), torch.ones(N, dtype=torch.float64))
        assert torch.linalg.matrix_rank(A) == N
        for i in range(task.order):
            block = group.targets[..., 2 * i : 2 * i + 2].double()
            power = torch.linalg.matrix_power(A, i)
            expected = power @ group.inputs.double() / power.square().sum(1).mean().sqrt()
            torch.testing.assert_close(block, expected, atol=2e-6, rtol=0)


def test_the_bank_needs_no_power() -> None:
    """X multiplied again and again, against the powers by torch."""
    A, X = torch.randn(5, 5, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    wanted = torch.cat([torch.linalg.matrix_power(A, i) @ X for i in range(4)], dim=-1)
    torch.testing.assert_close(filter_bank(A, X, 4), wanted, atol=1e-12, rtol=1e-12)
    for i, power in enumerate(powers(A, 4)):
        torch.testing.assert_close(power, torch.linalg.matrix_power(A, i), atol=1e-12, rtol=1e-12)


def test_every_node_is_reached() -> None:
    """Where random edges are rare, the cycle alone connects the nodes: N - 1 steps lead from each to each."""
    graph = PolynomialFilter("sparse", sizes=(9,), edge_density=0.0).graph(9)
    assert torch.equal(torch.linalg.matrix_power(graph, 9), torch.eye(9, dtype=torch.float64))
