"""Pairs and needles, found again by reading the text."""

import re

from iha.train.puzzles.retrieval import NOISE
from train.puzzles.addresses import puzzles


def test_pairs_are_found_by_reading():
    for puzzle in puzzles("pairs"):
        told, again = (re.findall(r" (\w+) (\d+)", part) for part in puzzle.text.split("\n"))
        assert len(dict(told)) == len(told) == puzzle.facts["pairs"]
        assert len(again) == 2 * len(told)
        assert all(dict(told)[key] == value for key, value in again)
        assert tuple(value for _, value in again) == puzzle.answers


def test_values_named_before_do_not_rule_out_the_next():
    """Drawn with repetition: after the first question about one of two keys, either is asked next."""
    two = [puzzle.answers for puzzle in puzzles("pairs") if puzzle.facts["pairs"] == 2]
    repeated = sum(answers[0] == answers[1] for answers in two) / len(two)
    assert 0.3 < repeated < 0.7


def test_needles_are_found_by_reading():
    for puzzle in puzzles("needles"):
        values = dict(re.findall(r"magic numbers for (\w+) is: (\d+)\.", puzzle.text))
        assert len(values) == puzzle.facts["needles"]
        asked = re.findall(r"\nWhat is the special magic number for (\w+) mentioned", puzzle.text)
        assert len(asked) == len(values)
        assert puzzle.answers == tuple(values[key] for key in asked)


def test_needles_lie_apart_in_noise():
    """Noise before each needle and after the last: one to five sentences, each time going on where it stopped."""
    for puzzle in puzzles("needles"):
        text = puzzle.pieces[0].text
        gaps = re.split(r"One of the special magic numbers for \w+ is: \d+\.", text.partition("\n")[2])
        assert len(gaps) == puzzle.facts["needles"] + 1
        assert {gap.count(".") for gap in gaps} <= {1, 2, 3, 4, 5}
        noise = "".join(f" {gap.strip()}" for gap in gaps)
        assert noise in "".join(NOISE) * 12
