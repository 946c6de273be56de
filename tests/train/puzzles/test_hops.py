"""Chains of facts, followed again by reading the text."""

import re

from iha.train.puzzles.hops import chain
from train.puzzles.addresses import puzzles


def test_chains_are_found_by_reading():
    for puzzle in puzzles("hops"):
        told, *asked = puzzle.text.split("\n")
        boss = dict(re.findall(r" (\w+) (\w+),", told))
        assert len(boss) == puzzle.facts["people"]
        assert all(name != other for name, other in boss.items())
        found = []
        able = [name for name in boss if name not in chain(boss, name, puzzle.facts["hops"])]
        assert sorted(line.split()[1] for line in asked) == sorted(able)  # everybody, once
        for line in asked:
            times, name, answer = line.split()
            asked_for = name
            assert times == {1: "Once", 2: "Twice", 3: "Thrice"}[puzzle.facts["hops"]]
            for _ in range(puzzle.facts["hops"]):
                name = boss[name]
            assert answer == name != asked_for
            found.append(name)
        assert tuple(found) == puzzle.answers


def test_depths_and_sizes_are_covered():
    facts = [puzzle.facts for puzzle in puzzles("hops")]
    assert {fact["hops"] for fact in facts} == {1, 2, 3}
    assert {fact["people"] for fact in facts} == {4, 6, 8}


def test_a_chain_by_hand():
    boss = {"Ann": "Ben", "Ben": "Carl", "Carl": "Ann"}
    assert chain(boss, "Ann", 1) == ["Ben"]
    assert chain(boss, "Ben", 4) == ["Carl", "Ann", "Ben", "Carl"]
