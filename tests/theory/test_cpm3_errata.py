"""What goes wrong in Theorem 4 when it is built word for word; errata E5, E8, E14 and E21."""

import pytest
import torch

from iha.theory.cpm3 import Task, brute_force, is_multiple, is_multiple_printed
from iha.theory.cpm3_errata import (
    all_coordinates_error,
    causal_error,
    distinct_pairs_error,
    finite_temperature_error,
    one_of_the_ties_error,
    short_sequence_workspace,
    zero_padding_error,
)


def test_e5_pairs_coordinates_and_padding() -> None:
    assert distinct_pairs_error(seed=0) >= 1
    assert all_coordinates_error(seed=0) >= 1
    assert zero_padding_error(seed=0) >= 1
    masked, shifts = short_sequence_workspace("masked", seed=0)
    assert ((masked - shifts) * (shifts > 0)).abs().max() >= 1
    unmasked, shifts = short_sequence_workspace("none", seed=0)
    assert torch.equal(unmasked, shifts)


def test_e8_one_of_the_tied_keys_is_not_enough() -> None:
    assert one_of_the_ties_error(seed=0) >= 1


def test_e14_counts_depend_on_later_tokens() -> None:
    task = Task(5, 12, largest=9)
    first = [int(brute_force(torch.tensor([0, 0, last]), task)[0]) for last in (0, 1)]
    assert first == [9, 4]  # the count of the first token moves with the last one
    assert causal_error(seed=0) >= 1


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
