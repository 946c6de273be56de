"""Every task against a plain loop over its definition; splits that are pure, disjoint and balanced as expected."""

import itertools
from dataclasses import replace

import pytest
import torch

from iha.synthetic.tasks import IGNORE, SPLITS, TASKS, Group, generate


def rows(groups: dict[int, Group]) -> list[tuple[int, bytes]]:
    return [(size, row.numpy().tobytes()) for size, group in groups.items() for row in group.inputs]


def small(name: str, seed: int = 0, count: int = 40) -> dict[int, Group]:
    return generate(TASKS[name], "train", seed, count)


@pytest.mark.parametrize("name", TASKS)
def test_data_is_a_pure_function_of_task_split_and_seed(name: str) -> None:
    first = rows(small(name))
    torch.manual_seed(123)
    torch.rand(7)
    assert rows(small(name)) == first
    assert rows(small(name, seed=1)) != first
    assert rows(generate(TASKS[name], "test", 0, 40)) != first


@pytest.mark.parametrize("name", TASKS)
def test_splits_are_disjoint(name: str) -> None:
    # Small enough for independent draws to collide: 4 x 4 matrices.
    task = replace(TASKS[name], sizes=(4,)) if TASKS[name].grid else TASKS[name]
    seen = [set(rows(generate(task, split, seed, 3000))) for split in SPLITS for seed in (0, 1)]
    for (i, a), (j, b) in itertools.combinations(enumerate(seen), 2):
        if i // 2 != j // 2:  # of different splits, whatever the seeds
            assert not a & b


@pytest.mark.parametrize("name", TASKS)
def test_sizes_are_uniform_and_counts_exact(name: str) -> None:
    groups = generate(TASKS[name], "validation", 3, 3000)
    assert sum(map(len, groups.values())) == 3000
    share = 3000 / len(TASKS[name].sizes)
    for size in TASKS[name].sizes:
        assert abs(len(groups[size]) - share) < 5 * share**0.5
        assert groups[size].inputs.shape[1] == groups[size].targets.shape[1] == TASKS[name].length(size)


@pytest.mark.parametrize(("name", "hops"), [("binary", 2), ("ternary", 3)])
def test_relation_composition_by_paths(name: str, hops: int) -> None:
    for m, group in small(name).items():
        for inputs, targets in zip(group.inputs[:5], group.targets[:5], strict=True):
            R = inputs.view(m, m).tolist()
            for i, j in itertools.product(range(m), repeat=2):
                paths = itertools.product(range(m), repeat=hops - 1)
                expected = any(all(R[a][b] for a, b in itertools.pairwise((i, *path, j))) for path in paths)
                assert targets[i * m + j] == expected


def test_two_hop_balance_is_what_the_density_gives() -> None:
    """Measured on 40 000 examples against the closed form, per m: from 50 % ones at m = 6 to 67 % at m = 10."""
    p = TASKS["binary"].density  # type: ignore[attr-defined]
    for m, group in generate(TASKS["binary"], "train", 0, 40_000).items():
        # No path through k other than i, j; and none through i or j: R_ij = 0, or R_ii = R_jj = 0.
        off = 1 - (1 - p * p) ** (m - 2) * ((1 - p) + p * (1 - p) ** 2)
        diagonal = 1 - (1 - p) * (1 - p * p) ** (m - 1)
        expected = (diagonal + (m - 1) * off) / m
        # Entries of one matrix are correlated: at most m of them through a row, so m times the variance.
        error = (0.25 * m / (len(group) * m * m)) ** 0.5
        assert abs(group.targets.double().mean().item() - expected) < 4 * error


def test_three_hop_is_balanced() -> None:
    targets = torch.cat([group.targets.flatten() for group in generate(TASKS["ternary"], "train", 0, 20_000).values()])
    assert abs(targets.double().mean().item() - 0.5) < 0.01


def test_cpm3_by_brute_force() -> None:
    task = TASKS["cpm3"]
    for N, group in small("cpm3").items():
        for inputs, targets in zip(group.inputs[:5], group.targets[:5], strict=True):
            x = inputs[:, 0].tolist()
            for i in range(N):
                pairs = itertools.product(range(N), repeat=2)
                count = sum((x[i] + task.coefficient * x[a] + x[b]) % task.modulus == 0 for a, b in pairs)  # type: ignore[attr-defined]
                assert targets[i] == count < task.num_outputs


def test_cpm3_depends_on_the_order() -> None:
    task = TASKS["cpm3"]
    assert task.coefficient % task.modulus != 1  # type: ignore[attr-defined]


def test_polynomial_filter_in_float64() -> None:
    task = TASKS["polynomial"]
    for N, group in small("polynomial").items():
        A = task.graph(N)  # type: ignore[attr-defined]
        assert torch.allclose(A.sum(1), torch.ones(N, dtype=torch.float64))
        assert torch.linalg.matrix_rank(A) == N
        for i in range(task.order):  # type: ignore[attr-defined]
            block = group.targets[..., 2 * i : 2 * i + 2].double()
            power = torch.linalg.matrix_power(A, i)
            expected = power @ group.inputs.double() / power.square().sum(1).mean().sqrt()
            torch.testing.assert_close(block, expected, atol=2e-6, rtol=0)


def test_retrieval_by_dictionary() -> None:
    for pairs, group in small("retrieval").items():
        for inputs, targets in zip(group.inputs.tolist(), group.targets.tolist(), strict=True):
            stored = {(a, b): value for a, b, value in inputs[:pairs]}
            assert len(stored) == pairs
            assert targets[:pairs] == [IGNORE] * pairs
            for (a, b, asks), target in zip(inputs[pairs:], targets[pairs:], strict=True):
                assert asks == 0
                assert target == stored[a, b] - 1


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="'dev'"):
        generate(TASKS["binary"], "dev", 0, 10)
    with pytest.raises(ValueError, match="got 0"):
        generate(TASKS["binary"], "train", 0, 0)
    with pytest.raises(ValueError, match="sizes"):
        generate(replace(TASKS["binary"], sizes=(0,)), "train", 0, 10)


def test_a_task_with_too_few_examples_says_so() -> None:
    """There are two 1 x 1 matrices: at least one of three splits gets none."""
    tiny = replace(TASKS["binary"], sizes=(1,))
    with pytest.raises(ValueError, match="too few different examples"):
        [generate(tiny, split, 0, 10) for split in SPLITS]
