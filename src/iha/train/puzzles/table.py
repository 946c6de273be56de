"""The puzzles by name, as recipes call them."""

from functools import partial

from iha.train.puzzles.arithmetic import arithmetic
from iha.train.puzzles.hops import hops
from iha.train.puzzles.puzzle import Generator
from iha.train.puzzles.retrieval import needles, pairs

PUZZLES: dict[str, Generator] = {
    "pairs": partial(pairs, counts=(2, 4, 8)),
    "needles": partial(needles, counts=(1, 2, 4, 8)),
    "hops": partial(hops, depths=(1, 2, 3), people=(4, 6, 8)),
    "arithmetic": partial(arithmetic, steps=(1, 2, 3)),
}
