"""Facts to chain: everybody reports to somebody, and the question follows the relation one, two or three times."""

import random
from collections.abc import Sequence

from iha.train.puzzles.puzzle import Piece, Puzzle
from iha.train.puzzles.words import NAMES

BOSSES = "Bosses:"
TIMES = {1: "Once", 2: "Twice", 3: "Thrice"}


def hops(rng: random.Random, depths: Sequence[int], people: Sequence[int]) -> Puzzle:
    """Everybody's boss is drawn at random among the others, and the facts are in random order.

    "Bosses: Ann Ben, Ben Carl," says that Ben is Ann's boss and Carl is Ben's; "Twice Ann" asks for the boss of her
    boss. Nobody is asked about whose chain returns to themselves within that many steps: the answer would be in the
    question.
    """
    names = rng.sample(NAMES, rng.choice(list(people)))
    depth = rng.choice(list(depths))
    able: list[str] = []
    while not able:
        boss = {name: rng.choice([other for other in names if other != name]) for name in names}
        able = [name for name in names if name not in chain(boss, name, depth)]
    pieces = [Piece(BOSSES + "".join(fact(name, boss[name]) for name in rng.sample(names, len(names))))]
    for name in rng.sample(able, len(able)):
        pieces += [Piece(question(name, depth)), Piece(f" {chain(boss, name, depth)[-1]}", is_answer=True)]
    return Puzzle(tuple(pieces), {"hops": depth, "people": len(names)})


def fact(name: str, boss: str) -> str:
    return f" {name} {boss},"


def question(name: str, depth: int) -> str:
    return f"\n{TIMES[depth]} {name}"


def chain(boss: dict[str, str], name: str, depth: int) -> list[str]:
    """Who comes after `name`, one per hop."""
    found = []
    for _ in range(depth):
        name = boss[name]
        found.append(name)
    return found
