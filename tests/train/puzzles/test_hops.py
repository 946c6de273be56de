"""Chains of facts, followed again by reading the text."""

import re

from iha.train.puzzles.hops import chain
from train.puzzles.addresses import puzzles


def test_chains_are_found_by_reading():
    for puzzle in puzzles("hops"):
        boss = dict(re.findall(r"The boss of (\w+) is (\w+)\.", puzzle.text))
        assert len(boss) == puzzle.facts["people"]
        assert all(name != other for name, other in boss.items())
        found, questions = [], re.findall(r"Who is (.*)\?", puzzle.text)
        able = [name for name in boss if name not in chain(boss, name, puzzle.facts["hops"])]
        assert sorted(question.rsplit(" ", 1)[1] for question in questions) == sorted(able)  # everybody, once
        for question in questions:
            depth, name = question.count("the boss of "), question.rsplit(" ", 1)[1]
            assert depth == puzzle.facts["hops"]
            for _ in range(depth):
                name = boss[name]
            assert name not in question
            found.append(name)
        assert tuple(found) == puzzle.answers


def test_depths_and_sizes_are_covered():
    facts = [puzzle.facts for puzzle in puzzles("hops")]
    assert {fact["hops"] for fact in facts} == {1, 2, 3}
    assert {fact["people"] for fact in facts} == {4, 6, 8, 12}


def test_a_chain_by_hand():
    boss = {"Ann": "Ben", "Ben": "Carl", "Carl": "Ann"}
    assert chain(boss, "Ann", 1) == ["Ben"]
    assert chain(boss, "Ben", 4) == ["Carl", "Ann", "Ben", "Carl"]
