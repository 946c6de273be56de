"""The checks of Theorem 4: the predicate, the example, the bound; errata E3, E4 and E6."""

import itertools

import pytest
import torch

from iha.theory.cpm3 import Task, brute_force, cyclic, parameters
from iha.theory.cpm3_claims import PRINTED_WORKSPACE, check, example_workspace
from iha.theory.polynomial_filters import ceil_sqrt


def test_e3_order_matters_by_g_modulo_m_only() -> None:
    for M, G in itertools.product(range(1, 9), range(1, 40)):
        symmetric = all((a + G * b + c - a - G * c - b) % M == 0 for a in range(2) for b in range(M) for c in range(M))
        assert symmetric == (G % M == 1 % M)
    # The paper's example: 3, 3, 3 is right for M = 3 alone, and 10 ≡ 1 (mod 3).
    counts = {
        M: brute_force(torch.tensor([1, 2, 3]), Task(M, 10, 3)).tolist() for M in range(1, 5)
    }  # G > 2M leaves M < 5
    assert [M for M, c in counts.items() if c == [3, 3, 3]] == [3]


def test_e4_the_printed_permutation_shifts_the_other_way() -> None:
    x = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)
    printed = torch.tensor([[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], dtype=torch.float64)
    assert torch.equal(cyclic(4, printed=True), printed)
    assert (printed @ x).tolist() == [4, 1, 2, 3]
    assert (cyclic(4) @ x).tolist() == [2, 3, 4, 1]
    assert torch.equal(example_workspace(printed=False), PRINTED_WORKSPACE)
    assert example_workspace(printed=True)[0].tolist() == [1, 4, 3, 2]
    # The printed sum, ½·I·(2,4,6,8) and ½·P·(½,1,3/2,2), gives neither column of the printed result.
    second = 0.5 * printed @ torch.tensor([0.5, 1, 1.5, 2], dtype=torch.float64)
    assert second.tolist() == [1, 0.25, 0.5, 0.75]


def test_e6_the_bound_holds_with_room_in_exact_arithmetic() -> None:
    """(T − N³)² ≤ 37²·N⁵, for N(N−1) pairs as printed and for the N² that are needed."""
    for n in (*range(1, 3000), 10**4, 10**4 + 1, 10**6, 10**6 + 1, 10**9 + 7):
        H = ceil_sqrt(n)
        printed = 2 * (n * n + n) * H + (n + 1) * H**2 + H**2 * n * (n - 1) + n * n + 4 * H**3
        for T in (printed, parameters("iha", n)):
            excess = T - n * n * (n - 1) - n * n
            assert excess**2 <= 37**2 * n**5
            assert (100 * excess) ** 2 <= 1415**2 * n**5  # 14.15 would do
        read = parameters("iha", n) - (H * H - n) * n * n  # only the N rows of the MLP that are read
        assert (100 * (read - n**3)) ** 2 <= 1273**2 * n**5  # 12.73 would do
    assert (100 * (parameters("iha", 2) - 2**3)) ** 2 > 1414**2 * 2**5  # and no less, at N = 2


@pytest.mark.parametrize("n_max", [None, 3, 20])
def test_all_claims_hold(n_max) -> None:
    assert [claim for claim in check(n_max=n_max) if not claim.passed] == []
