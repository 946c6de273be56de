"""Many keys and values to remember: a list of pairs, and RULER's needles in noise."""

import random
from collections.abc import Sequence

from iha.train.puzzles.puzzle import Piece, Puzzle
from iha.train.puzzles.words import WORDS

NOISE = (
    " The grass is green.", " The sky is blue.", " The sun is yellow.", " Here we go.", " There and back again.",
)  # fmt: skip
NEEDLES = "A special magic number is hidden within the following text. Make sure to memorize it.\n"  # how it begins
PAIRS = "Pairs:"
VALUES = range(10, 74)  # one token each
LONGEST_GAP = 5  # sentences of noise between two needles


def pairs(rng: random.Random, counts: Sequence[int]) -> Puzzle:
    """Keys with their values, then twice as many of them again, drawn with repetition. All keys are different.

    With repetition, because otherwise the values not yet named would narrow down the next: models learned that
    elimination (half of two values right, then all) and stopped there. A value follows its key at once, both times:
    that is what one induction head retrieves, the least a model must have learned to do more.
    """
    # Every length has the same share of the tokens: what is learned first, from short lists, would drown in long ones.
    (count,) = rng.choices(counts, weights=[1 / count for count in counts])
    keys = rng.sample(WORDS, count)
    values = [str(value) for value in rng.sample(VALUES, count)]
    pieces = [Piece(PAIRS + "".join(pair(key, value) for key, value in zip(keys, values, strict=True)))]
    for place, asked in enumerate(rng.choices(range(count), k=2 * count)):
        question = pairs_question(keys[asked]) if place == 0 else f" {keys[asked]}"
        pieces += [Piece(question), Piece(f" {values[asked]}", is_answer=True)]
    return Puzzle(tuple(pieces), {"pairs": count})


def pair(key: str, value: str) -> str:
    return f" {key} {value}"


def pairs_question(key: str) -> str:
    return f"\nAgain: {key}"


def needles(rng: random.Random, counts: Sequence[int]) -> Puzzle:
    """RULER's Multi-Key task in few words: numbers hidden in repeated sentences, as many questions as numbers."""
    count = rng.choice(list(counts))
    keys = rng.sample(WORDS, count)
    values = [str(value) for value in rng.sample(VALUES, count)]
    text, place = NEEDLES, rng.randrange(len(NOISE))
    for key, value in [*zip(keys, values, strict=True), ("", "")]:  # noise before each needle and after the last
        for _ in range(rng.randrange(1, LONGEST_GAP + 1)):
            text, place = text + NOISE[place % len(NOISE)], place + 1
        text += needle(key, value) if key else ""
    pieces = [Piece(text.replace("\n ", "\n"))]
    for asked in rng.choices(range(count), k=count):
        pieces += [Piece(needle_question(keys[asked])), Piece(f" {values[asked]}", is_answer=True)]
    return Puzzle(tuple(pieces), {"needles": count})


def needle(key: str, value: str) -> str:
    return f" One of the special magic numbers for {key} is: {value}."


def needle_question(key: str) -> str:
    question = f"\nWhat is the special magic number for {key} mentioned in the provided text?"
    return f"{question} The special magic number for {key} mentioned in the provided text is"
