"""Steps to reason: word problems in GSM8K's format, with arithmetic that a small model can learn.

A solution has one line per step with GSM8K's calculator annotation, `<<3+4=7>>7`, and ends with `#### 7`.
"""

import random
from collections.abc import Sequence

from iha.train.puzzles.puzzle import Piece, Puzzle
from iha.train.puzzles.words import NAMES

THINGS = ("apples", "books", "coins", "cards", "stamps", "shells", "pens", "marbles")
LARGEST = 99


def arithmetic(rng: random.Random, steps: Sequence[int]) -> Puzzle:
    """Somebody has some things; each step adds, removes or doubles them."""
    name, thing, count = rng.choice(NAMES), rng.choice(THINGS), rng.choice(list(steps))
    value = rng.randrange(2, 30)
    story, lines = f"{name} has {value} {thing}.", []
    for _ in range(count):
        sentence, sum_, value = _step(rng, name, thing, value)
        story += f" {sentence}"
        lines.append(f"\n{name} then has {sum_}=<<{sum_}={value}>>{value} {thing}.")
    question = f"Question: {story} How many {thing} does {name} have now?\nAnswer:"
    working = Piece("".join(lines) + "\n####", is_working=True)
    pieces = Piece(question), working, Piece(f" {value}", is_answer=True)
    return Puzzle(pieces, {"steps": count})


def _step(rng: random.Random, name: str, thing: str, value: int) -> tuple[str, str, int]:
    """A sentence, its sum and the new value, which stays between 1 and LARGEST."""
    kinds = (["gets"] if value < LARGEST else []) + (["loses"] if value > 1 else [])
    kinds += ["doubles"] if 2 * value <= LARGEST else []
    kind = rng.choice(kinds)
    if kind == "gets":
        more = rng.randrange(1, min(20, LARGEST - value) + 1)
        return f"{name} gets {more} more.", f"{value}+{more}", value + more
    if kind == "loses":
        less = rng.randrange(1, min(20, value - 1) + 1)
        return f"{name} gives away {less}.", f"{value}-{less}", value - less
    return f"Then {name} doubles the number of {thing}.", f"{value}*2", 2 * value
