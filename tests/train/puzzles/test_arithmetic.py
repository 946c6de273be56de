"""Every step of a word problem is right, found again by reading it."""

import random
import re

import pytest

from iha.train.puzzles.arithmetic import LARGEST, arithmetic
from train.puzzles.addresses import puzzles


def test_arithmetic_is_right():
    for puzzle in puzzles("arithmetic"):
        sums = re.findall(r"(\d+[-+*]\d+)=<<(\d+[-+*]\d+)=(\d+)>>(\d+) ", puzzle.text)
        assert len(sums) == puzzle.facts["steps"]
        value = re.search(r"has (\d+) ", puzzle.text)[1]
        for first, second, result, again in sums:
            assert first == second
            assert result == again
            assert re.match(r"\d+", first)[0] == value
            assert eval(first) == int(result)
            value = result
        assert puzzle.answers == (value,)


def test_the_story_says_what_the_sums_compute():
    """Read from the story alone, without its solution."""
    for puzzle in puzzles("arithmetic"):
        story, _, _ = puzzle.text.partition(" How many ")
        value = int(re.search(r" has (\d+) ", story)[1])
        for more, less, doubled in re.findall(r"gets (\d+) more|gives away (\d+)|(doubles)", story):
            value = 2 * value if doubled else value + int(more or 0) - int(less or 0)
        assert puzzle.answers == (str(value),)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_stay_small_over_many_steps(seed):
    puzzle = arithmetic(random.Random(seed), steps=[300])
    results = [int(result) for result in re.findall(r"=(\d+)>>", puzzle.text)]
    assert len(results) == 300
    assert min(results) >= 1
    assert LARGEST - 20 < max(results) <= LARGEST
