"""A puzzle is a document in pieces; some of them are answers that follow from the text before them."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

SPLITS = ("train", "validation", "test")


class Piece(NamedTuple):
    text: str
    is_answer: bool = False
    is_working: bool = False  # the steps that lead to an answer: the model must learn to write them too


@dataclass(frozen=True)
class Puzzle:
    """Text in pieces, with what is being asked, e.g. {"hops": 2}, to report accuracies by.

    A piece that is not the first begins with a space or a newline. Tokenizers that never join a word with the
    character before its space then give the same tokens for the pieces as for the whole text.
    """

    pieces: tuple[Piece, ...]
    facts: dict[str, int | str]

    def __post_init__(self) -> None:
        for piece in self.pieces[1:]:
            if piece.text[:1] not in (" ", "\n"):
                raise ValueError(f"a piece must begin with a space or a newline, got {piece.text!r}")

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(piece.text.strip() for piece in self.pieces if piece.is_answer)


Generator = Callable[[random.Random], Puzzle]


def generate(name: str, split: str, seed: int, index: int) -> Puzzle:
    """Puzzle number `index`. Splits never share a stream of random numbers, nor do seeds or names."""
    from iha.train.puzzles.table import PUZZLES

    if name not in PUZZLES:
        raise ValueError(f"no puzzle is called {name!r}; there are {', '.join(PUZZLES)}")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
    if index < 0:
        raise ValueError(f"index must be at least 0, got {index}")
    # A hash and not the tuple itself: Python's own hash of strings changes from process to process.
    digest = hashlib.blake2b(f"{name}/{split}/{seed}/{index}".encode(), digest_size=8).digest()
    return PUZZLES[name](random.Random(int.from_bytes(digest, "big")))
