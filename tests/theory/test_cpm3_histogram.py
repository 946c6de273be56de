"""One head is enough for CPM-3; erratum E23."""

import pytest
import torch

from iha.theory import cpm3_histogram
from iha.theory.cpm3 import Task, brute_force, random_tokens
from iha.theory.cpm3_claims import MODULI


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
