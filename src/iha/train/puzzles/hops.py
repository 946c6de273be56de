"""Facts to chain: everybody reports to somebody, and the question follows the relation one, two or three times."""

import random
from collections.abc import Sequence

from iha.train.puzzles.puzzle import Piece, Puzzle
from iha.train.puzzles.words import NAMES


def hops(rng: random.Random, depths: Sequence[int], people: Sequence[int]) -> Puzzle:
    """Everybody's boss is drawn at random among the others, and the facts are in random order.

    A question about d hops is "Who is the boss of the boss of Ann?" with d times "the boss of". Nobody is asked
    about whose chain returns to themselves within d steps: the answer would be in the question.
    """
    names = rng.sample(NAMES, rng.choice(list(people)))
    depth = rng.choice(list(depths))
    able: list[str] = []
    while not able:
        boss = {name: rng.choice([other for other in names if other != name]) for name in names}
        able = [name for name in names if name not in chain(boss, name, depth)]
    facts = [f"The boss of {name} is {boss[name]}." for name in rng.sample(names, len(names))]
    pieces = [Piece(" ".join(facts))]
    for name in rng.sample(able, len(able)):
        question = f"\nWho is {'the boss of ' * depth}{name}?"
        pieces += [Piece(question), Piece(f" {chain(boss, name, depth)[-1]}", is_answer=True)]
    return Puzzle(tuple(pieces), {"hops": depth, "people": len(names)})


def chain(boss: dict[str, str], name: str, depth: int) -> list[str]:
    """Who comes after `name`, one per hop."""
    found = []
    for _ in range(depth):
        name = boss[name]
        found.append(name)
    return found
