"""Pairs and needles, found again by reading the text."""

import re

from train.puzzles.addresses import puzzles


def test_pairs_are_found_by_reading():
    for puzzle in puzzles("pairs"):
        values = dict(re.findall(r"\n(\w+) = (\d+)", puzzle.text))
        assert len(values) == puzzle.facts["pairs"]
        asked = re.findall(r"What is (\w+)\?", puzzle.text)
        assert sorted(asked) == sorted(values)  # every key, once
        assert tuple(values[key] for key in asked) == puzzle.answers


def test_needles_are_found_by_reading():
    for puzzle in puzzles("needles"):
        values = dict(re.findall(r"magic numbers for (\w+) is: (\d+)\.", puzzle.text))
        assert len(values) == puzzle.facts["needles"]
        (asked,) = re.findall(r"\nWhat is the special magic number for (\w+) mentioned", puzzle.text)
        assert puzzle.answers == (values[asked],)


def test_needles_lie_apart_in_noise():
    """Noise before each needle and after the last: one to four times the five sentences."""
    for puzzle in puzzles("needles"):
        text = puzzle.pieces[0].text
        gaps = [gap.count("The grass is green.") for gap in re.split(r"One of the special magic numbers", text)]
        assert len(gaps) == puzzle.facts["needles"] + 1
        assert set(gaps) <= {1, 2, 3, 4}
