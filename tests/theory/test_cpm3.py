"""Theorem 4: counts against brute force, parameters against formulas, and errata E3, E4, E5, E6, E8, E14, E20–E23."""

import itertools

import pytest
import torch

from iha.theory import cpm3_histogram
from iha.theory.cpm3 import (
    Task,
    brute_force,
    build,
    bytes_needed,
    cyclic,
    iha_attention_parameters,
    is_multiple,
    is_multiple_printed,
    mha_attention_parameters,
    parameters,
    random_tokens,
)
from iha.theory.cpm3_claims import MODULI, PRINTED_WORKSPACE, check, count_error, example_workspace
from iha.theory.cpm3_errata import (
    all_coordinates_error,
    causal_error,
    distinct_pairs_error,
    finite_temperature_error,
    one_of_the_ties_error,
    short_sequence_workspace,
    zero_padding_error,
)
from iha.theory.polynomial_filters import ceil_sqrt


def count_in_python(x: list[int], task: Task) -> list[int]:
    """The definition with nothing but Python's integers."""
    return [sum((xi + task.G * a + b) % task.M == 0 for a, b in itertools.product(x, x)) for xi in x]


def test_brute_force_is_the_definition() -> None:
    for M, G in MODULI:
        task = Task(M, G, largest=20)
        x = random_tokens(7, task, seed=M)[0]
        assert brute_force(x, task).tolist() == count_in_python(x.tolist(), task)


@pytest.mark.parametrize("n_max", [1, 2, 3, 4, 5, 8, 9, 10, 16])
@pytest.mark.parametrize("kind", ["mha", "iha"])
def test_counts_are_exact_for_every_length(kind, n_max) -> None:
    for M, G in MODULI:
        network = build(kind, n_max, Task(M, G, largest=n_max + M))
        assert count_error(network, range(1, n_max + 1), seed=3) == 0.0
    assert network.attention.heads == (n_max if kind == "mha" else ceil_sqrt(n_max))
    assert network.count() == parameters(kind, n_max)


@pytest.mark.parametrize("n_max", [4, 10, 16])
def test_the_fast_path_at_scale_1000_is_temperature_zero(n_max) -> None:
    network = build("iha", n_max, Task(7, 16, largest=n_max))
    assert count_error(network, range(1, n_max + 1), seed=0, fast=True) < 1e-10


@pytest.mark.parametrize("kind", ["mha", "iha"])
def test_the_workspace_holds_the_cyclic_shifts(kind) -> None:
    n = 7
    network = build(kind, n, Task(5, 11, largest=9))
    x = random_tokens(n, network.task, 0).double()
    workspace = network.workspace(x)[0]
    for t in range(workspace.shape[-1]):
        assert torch.equal(workspace[:, t], x[0].roll(-(t % n)))


def test_bad_input_is_refused() -> None:
    network = build("iha", 4, Task(3, 7, largest=5))
    with pytest.raises(ValueError, match="1 to 4 tokens, got 5"):
        network(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(ValueError, match=r"0\.\.5, got 0\.\.6"):
        network(torch.tensor([[0, 6]]))
    with pytest.raises(ValueError, match="'gqa'"):
        build("gqa", 4, network.task)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        build("iha", 0, network.task)
    with pytest.raises(ValueError, match="M >= 1"):
        Task(0, 1, 1)


def test_sizes_too_large_are_refused_with_their_bytes() -> None:
    with pytest.raises(ValueError, match=f"N_max = 5000 needs about {bytes_needed(5000):,} bytes"):
        build("iha", 5000, Task(5, 12, largest=5))


def test_e3_order_matters_by_g_modulo_m_only() -> None:
    for M, G in itertools.product(range(1, 9), range(1, 40)):
        symmetric = all((a + G * b + c - a - G * c - b) % M == 0 for a in range(2) for b in range(M) for c in range(M))
        assert symmetric == (G % M == 1 % M)
    # The paper's example: 3, 3, 3 is right for M = 3 alone, and 10 ≡ 1 (mod 3).
    counts = {M: count_in_python([1, 2, 3], Task(M, 10, 3)) for M in range(1, 5)}  # G > 2M leaves M < 5
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


def test_e5_pairs_coordinates_and_padding() -> None:
    assert distinct_pairs_error(seed=0) >= 1
    assert all_coordinates_error(seed=0) >= 1
    assert zero_padding_error(seed=0) >= 1
    masked, shifts = short_sequence_workspace("masked", seed=0)
    assert ((masked - shifts) * (shifts > 0)).abs().max() >= 1
    unmasked, shifts = short_sequence_workspace("none", seed=0)
    assert torch.equal(unmasked, shifts)


def test_e6_iha_is_cheaper_except_at_1_2_3_and_5() -> None:
    assert [n for n in range(1, 3000) if parameters("iha", n) >= parameters("mha", n)] == [1, 2, 3, 5]


def test_e6_the_bound_holds_with_room_in_exact_arithmetic() -> None:
    """(T − N³)² ≤ 37²·N⁵, for N(N−1) pairs as printed and for the N² that are needed."""
    for n in (*range(1, 3000), 10**4, 10**4 + 1, 10**6, 10**6 + 1, 10**9 + 7):
        H = ceil_sqrt(n)
        printed = 2 * (n * n + n) * H + (n + 1) * H**2 + H**2 * n * (n - 1) + n * n + 4 * H**3
        for T in (printed, parameters("iha", n)):
            excess = T - n * n * (n - 1) - n * n
            assert excess**2 <= 37**2 * n**5
            assert excess**2 * 100 <= 1415**2 * n**5 / 100  # 14.15 would do


def test_e8_one_of_the_tied_keys_is_not_enough() -> None:
    assert one_of_the_ties_error(seed=0) >= 1


def test_e14_counts_depend_on_later_tokens() -> None:
    task = Task(5, 12, largest=9)
    first = [int(brute_force(torch.tensor([0, 0, last]), task)[0]) for last in (0, 1)]
    assert first == [9, 4]  # the count of the first token moves with the last one
    assert causal_error(seed=0) >= 1


def test_e20_the_mha_construction_is_smaller_than_its_lower_bound() -> None:
    for n in (4, 9, 16):
        network = build("mha", n, Task(5, 12, largest=n))
        assert network.attention.w_v.numel() == n * (n + 1)  # N value vectors of N + 1; the paper charges N³
        assert network.attention.count() == mha_attention_parameters(n) == 2 * n**3 + 3 * n**2 + n < 3 * n**3


def test_e21_the_printed_activation_loses_hits_just_below_a_multiple() -> None:
    task = Task(5, 12, largest=100)
    almost = torch.tensor([10.0 - 1e-12], dtype=torch.float64)
    assert is_multiple_printed(almost, task).item() == 0.0
    assert is_multiple(almost, task).item() == pytest.approx(1.0, abs=1e-11)
    integers = torch.arange(task.ceiling + 1, dtype=torch.float64)
    assert torch.equal(is_multiple(integers, task), is_multiple_printed(integers, task))
    beyond = torch.arange(task.padding, task.padding + 50, dtype=torch.float64)
    assert is_multiple(beyond, task).max() == 0
    # So at any finite temperature, however sharp.
    assert finite_temperature_error(is_multiple_printed, seed=0) >= 1
    assert finite_temperature_error(is_multiple, seed=0) < 1e-6


def test_e22_with_the_mlp_both_are_cubic() -> None:
    n = 10**8
    assert parameters("mha", n) / n**3 == pytest.approx(3, rel=1e-3)
    assert parameters("iha", n) / n**3 == pytest.approx(1, rel=1e-3)
    assert iha_attention_parameters(n) / n**2.5 == pytest.approx(2, rel=1e-3)


def test_e23_shuffling_the_sequence_shuffles_the_counts() -> None:
    for M, G in MODULI:
        task = Task(M, G, largest=12)
        x = random_tokens(11, task, seed=G)[0]
        order = torch.randperm(11)
        assert torch.equal(brute_force(x[order], task), brute_force(x, task)[order])


@pytest.mark.parametrize(("M", "G"), [(2, 5), (3, 8), (5, 12)])
def test_e23_one_head_counts_exactly(M, G) -> None:
    task = Task(M, G, largest=12)
    network = cpm3_histogram.build(12, task)
    assert network.attention.heads == 1
    for n in range(1, 13):
        x = random_tokens(n, task, seed=n)
        torch.testing.assert_close(network(x)[0], brute_force(x[0], task).double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_max", [None, 3, 20])
def test_all_claims_hold(n_max) -> None:
    assert [claim for claim in check(n_max=n_max) if not claim.passed] == []
