"""Multi-key retrieval, against a dictionary."""

from dataclasses import replace

import pytest

from iha.synthetic.tasks import IGNORE, TASKS, generate


def test_retrieval_by_dictionary() -> None:
    for pairs, group in generate(TASKS["retrieval"], "train", 0, 40).items():
        for inputs, targets in zip(group.inputs.tolist(), group.targets.tolist(), strict=True):
            stored = {(a, b): value for a, b, value in inputs[:pairs]}
            assert len(stored) == pairs
            assert targets[:pairs] == [IGNORE] * pairs
            for (a, b, asks), target in zip(inputs[pairs:], targets[pairs:], strict=True):
                assert asks == 0
                assert target == stored[a, b] - 1


def test_most_keys_share_a_symbol_with_the_one_asked_for() -> None:
    """Half a key is not enough: on average (16 - 1) · 10/35 of the 15 other keys share one of its two symbols."""
    group = generate(TASKS["retrieval"], "train", 0, 3000)[16]
    stored, asked = group.inputs[:, :16], group.inputs[:, 16:]
    shared = (stored[:, None, :, :2] == asked[:, :, None, :2]).sum(-1) == 1
    assert shared.double().sum(-1).mean().item() == pytest.approx(15 * 10 / 35, rel=0.02)


def test_more_keys_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="37 different keys need more than 6 symbols"):
        generate(replace(TASKS["retrieval"], sizes=(8, 37)), "train", 0, 10)
