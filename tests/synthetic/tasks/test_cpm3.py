"""CPM-3 by brute force over the pairs of its definition."""

import itertools

import pytest
import torch

from iha.synthetic.tasks import TASKS, cpm3, generate
from iha.synthetic.tasks.cpm3 import CPM3, count_matches


def test_cpm3_by_brute_force() -> None:
    task = TASKS["cpm3"]
    assert isinstance(task, CPM3)
    for N, group in generate(TASKS["cpm3"], "train", 0, 40).items():
        for inputs, targets in zip(group.inputs[:5], group.targets[:5], strict=True):
            x = inputs[:, 0].tolist()
            for i in range(N):
                pairs = itertools.product(range(N), repeat=2)
                count = sum((x[i] + task.coefficient * x[a] + x[b]) % task.modulus == 0 for a, b in pairs)
                assert targets[i] == count < task.num_outputs


def test_the_order_of_the_pair_matters() -> None:
    """2 + 8·1 + 2 = 12 is 0 mod 3 and 2 + 8·2 + 1 = 19 is not: j1 and j2 cannot change places."""
    task = TASKS["cpm3"]
    assert isinstance(task, CPM3)
    x = torch.tensor([[2, 1]])  # pairs of token 0: (2, 2), (2, 1), (1, 2), (1, 1) give 20, 19, 12, 11
    assert count_matches(x, task.modulus, task.coefficient).tolist()[0][0] == 1


@pytest.mark.parametrize("triples", [1, 700, 1 << 22])
def test_examples_counted_a_few_at_a_time(triples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.randint(10, (9, 7, 1), generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(cpm3, "_TRIPLES", triples)
    found = TASKS["cpm3"].answer(inputs, 7)
    assert torch.equal(found, count_matches(inputs[..., 0], 3, 8))
