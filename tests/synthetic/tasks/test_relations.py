"""Relation composition, path by path, and how often the answer is yes."""

import itertools

import pytest
import torch

from iha.synthetic.tasks import TASKS, generate


@pytest.mark.parametrize(("name", "hops"), [("binary", 2), ("ternary", 3)])
def test_relation_composition_by_paths(name: str, hops: int) -> None:
    for m, group in generate(TASKS[name], "train", 0, 40).items():
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
