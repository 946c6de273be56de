"""Splits: pure functions of their seed, disjoint, of exact counts. Each task has a file of its own."""

import itertools
from dataclasses import replace

import pytest
import torch

from iha.synthetic.tasks import SPLITS, TASKS, Group, generate
from iha.synthetic.tasks.base import content_hash


def rows(groups: dict[int, Group]) -> list[tuple[int, bytes]]:
    return [(size, row.numpy().tobytes()) for size, group in groups.items() for row in group.inputs]


@pytest.mark.parametrize("name", TASKS)
def test_data_is_a_pure_function_of_task_split_and_seed(name: str) -> None:
    first = rows(generate(TASKS[name], "train", 0, 40))
    torch.manual_seed(123)
    torch.rand(7)
    assert rows(generate(TASKS[name], "train", 0, 40)) == first
    assert rows(generate(TASKS[name], "train", 1, 40)) != first
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


def test_the_hash_spreads_examples_over_the_splits_as_80_10_10() -> None:
    """100 000 different examples: each tenth of the hash has its share, within five standard deviations."""
    inputs = torch.randint(2, (100_000, 40, 1), generator=torch.Generator().manual_seed(5))
    tenths = torch.bincount(content_hash(inputs).remainder(10), minlength=10)
    assert (tenths - 10_000).abs().max() < 5 * (100_000 * 0.1 * 0.9) ** 0.5
    assert torch.equal(content_hash(inputs[:9].clone()), content_hash(inputs)[:9])
    flipped = inputs[:1000].clone()
    flipped[:, 17] = 1 - flipped[:, 17]
    assert not (content_hash(flipped) == content_hash(inputs[:1000])).any()
