"""Many keys and values to remember: a list of pairs, and RULER's needles in noise."""

import random
from collections.abc import Sequence

from iha.train.puzzles.puzzle import Piece, Puzzle
from iha.train.puzzles.words import WORDS

NOISE = (
    " The grass is green.", " The sky is blue.", " The sun is yellow.", " Here we go.", " There and back again.",
)  # fmt: skip
NEEDLES = "A special magic number is hidden within the following text. Make sure to memorize it.\n"  # how it begins


def pairs(rng: random.Random, counts: Sequence[int]) -> Puzzle:
    """`key = value` lines, then a question for every key, in another order. All keys of a document are different.

    Everything is asked for, so that half of the document can be known from the other half. With few questions most of
    it would be random values, from which nothing can be learned.
    """
    count = rng.choice(list(counts))
    keys = rng.sample(WORDS, count)
    values = [str(value) for value in rng.sample(range(10, 100), count)]  # one token each
    pieces = [Piece("Pairs:" + "".join(f"\n{key} = {value}" for key, value in zip(keys, values, strict=True)))]
    for asked in rng.sample(range(count), count):
        pieces += [Piece(f"\nWhat is {keys[asked]}?"), Piece(f" {values[asked]}", is_answer=True)]
    return Puzzle(tuple(pieces), {"pairs": count})


def needles(rng: random.Random, counts: Sequence[int]) -> Puzzle:
    """RULER's Multi-Key task in few words: numbers hidden in repeated sentences, one of them asked for."""
    count = rng.choice(list(counts))
    keys = rng.sample(WORDS, count)
    values = [str(rng.randrange(1000, 10_000)) for _ in keys]
    gaps = sorted(rng.randrange(1, 5) for _ in range(count + 1))
    rng.shuffle(gaps)
    text = NEEDLES
    for key, value, gap in zip(keys, values, gaps[:-1], strict=True):
        text += "".join(NOISE) * gap + needle(key, value)
    text += "".join(NOISE) * gaps[-1]
    asked = rng.randrange(count)
    question, answer = Piece(needle_question(keys[asked])), Piece(f" {values[asked]}", is_answer=True)
    return Puzzle((Piece(text.replace("\n ", "\n")), question, answer), {"needles": count})


def needle(key: str, value: str) -> str:
    return f" One of the special magic numbers for {key} is: {value}."


def needle_question(key: str) -> str:
    question = f"\nWhat is the special magic number for {key} mentioned in the provided text?"
    return f"{question} The special magic number for {key} mentioned in the provided text is"
