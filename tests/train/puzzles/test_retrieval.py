"""Pairs and needles, found again by reading the text."""

import re

from iha.train.puzzles.retrieval import NOISE
from train.puzzles.addresses import puzzles


def test_pairs_are_found_by_reading():
    for puzzle in puzzles("pairs"):
        told, again = (dict(re.findall(r" (\w+) (\d+)", part)) for part in puzzle.text.split("\n"))
        assert len(told) == puzzle.facts["pairs"]
        assert again == told  # every key, once, with its value
        assert tuple(again.values()) == puzzle.answers
        assert list(again) != list(told) or len(told) < 8  # in another order


def test_needles_are_found_by_reading():
    for puzzle in puzzles("needles"):
        values = dict(re.findall(r"magic numbers for (\w+) is: (\d+)\.", puzzle.text))
        assert len(values) == puzzle.facts["needles"]
        asked = re.findall(r"\nWhat is the special magic number for (\w+) mentioned", puzzle.text)
        assert sorted(asked) == sorted(values)  # every key, once
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
