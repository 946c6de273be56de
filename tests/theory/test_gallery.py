"""The numbers behind the pictures are those of the theorems."""

import json

import pytest
import torch

from iha.theory.cpm3 import cyclic
from iha.theory.gallery import OF_CHECK, PICTURES, attention_patterns, cpm3_workspace, gallery, strictness_curves
from iha.theory.verify import CHECKS


def test_every_picture_belongs_to_a_check_and_is_plain_json() -> None:
    assert set(OF_CHECK) <= set(CHECKS)
    made = gallery(tuple(CHECKS))
    assert set(made) == set(PICTURES)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert gallery(("tables",)) == {}


@pytest.mark.parametrize("P", [2, 4])
def test_one_head_of_iha_holds_every_cyclic_shift_and_mha_one(P) -> None:
    numbers = attention_patterns(P)
    maps, N = torch.tensor(numbers["maps"], dtype=torch.float64), P * P
    for p in range(P):
        for r in range(P):
            want = torch.linalg.matrix_power(cyclic(N), p * P + r) / P  # the P maps of a row share one softmax
            assert torch.equal(maps[p, r], want), (p, r)
    assert torch.equal(torch.tensor(numbers["single"], dtype=torch.float64), torch.eye(N, dtype=torch.float64))


def test_the_workspace_and_the_counts_are_exact() -> None:
    numbers = cpm3_workspace()
    tokens = torch.tensor(numbers["tokens"], dtype=torch.float64)
    assert torch.equal(
        torch.tensor(numbers["workspace"], dtype=torch.float64), torch.stack([tokens.roll(-i) for i in range(9)])
    )
    assert numbers["counted"] == numbers["truth"]
    assert numbers["example"]["with_its_inverse"] == numbers["example"]["printed"]
    assert numbers["example"]["with_printed_shift"] != numbers["example"]["printed"]


def test_only_the_corrected_layer_leaves_the_line() -> None:
    numbers = {name: torch.tensor(values, dtype=torch.float64) for name, values in strictness_curves().items()}
    for name, straight in (("mha", True), ("printed", True), ("corrected", False)):
        bend = (numbers[name][2:] - 2 * numbers[name][1:-1] + numbers[name][:-2]).abs().max()
        assert (bend < 1e-12) == straight, name
