"""Theorem 4: counts against brute force, parameters against formulas; errata E6, E20 and E22."""

import itertools

import pytest
import torch

from iha.theory.cpm3 import (
    Task,
    brute_force,
    build,
    bytes_needed,
    iha_attention_parameters,
    mha_attention_parameters,
    parameters,
    random_tokens,
)
from iha.theory.cpm3_claims import MODULI, count_error
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


def test_e6_iha_is_cheaper_except_at_1_2_3_and_5() -> None:
    assert [n for n in range(1, 3000) if parameters("iha", n) >= parameters("mha", n)] == [1, 2, 3, 5]


def test_e20_the_mha_construction_is_smaller_than_its_lower_bound() -> None:
    for n in (4, 9, 16):
        network = build("mha", n, Task(5, 12, largest=n))
        assert network.attention.w_v.numel() == n * (n + 1)  # N value vectors of N + 1; the paper charges N³
        assert network.attention.count() == mha_attention_parameters(n) == 2 * n**3 + 3 * n**2 + n < 3 * n**3


def test_e22_with_the_mlp_both_are_cubic() -> None:
    n = 10**8
    assert parameters("mha", n) / n**3 == pytest.approx(3, rel=1e-3)
    assert parameters("iha", n) / n**3 == pytest.approx(1, rel=1e-3)
    assert iha_attention_parameters(n) / n**2.5 == pytest.approx(2, rel=1e-3)
