"""Every answer is right, found again by reading the text; and documents are a function of their address alone."""

import re
import subprocess
import sys

import pytest

from iha.train.puzzles import PUZZLES, Piece, Puzzle, generate

ADDRESSES = [("train", 0, index) for index in range(150)] + [("test", 7, index) for index in range(50)]


def puzzles(name):
    return [generate(name, *address) for address in ADDRESSES]


@pytest.mark.parametrize("name", PUZZLES)
def test_an_address_gives_the_same_document_in_another_process(name):
    code = f"from iha.train.puzzles import generate; print(generate({name!r}, 'train', 3, 11).text)"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout == generate(name, "train", 3, 11).text + "\n"


@pytest.mark.parametrize("name", PUZZLES)
def test_addresses_differ(name):
    addresses = [(split, seed, index) for split in ("train", "test") for seed in (0, 1) for index in range(100)]
    assert len({generate(name, *address).text for address in addresses}) == len(addresses)


@pytest.mark.parametrize("name", PUZZLES)
def test_answers_are_pieces_of_the_text(name):
    for puzzle in puzzles(name):
        assert puzzle.answers
        assert puzzle.text.endswith(puzzle.answers[-1])


def test_pairs_are_found_by_reading():
    for puzzle in puzzles("pairs"):
        values = dict(re.findall(r"\n(\w+) = (\d+)", puzzle.text))
        assert len(values) == puzzle.facts["pairs"]
        asked = re.findall(r"What is (\w+)\?", puzzle.text)
        assert tuple(values[key] for key in asked) == puzzle.answers


def test_needles_are_found_by_reading():
    for puzzle in puzzles("needles"):
        values = dict(re.findall(r"magic numbers for (\w+) is: (\d+)\.", puzzle.text))
        assert len(values) == puzzle.facts["needles"]
        (asked,) = re.findall(r"\nWhat is the special magic number for (\w+) mentioned", puzzle.text)
        assert puzzle.answers == (values[asked],)


def test_chains_are_found_by_reading():
    for puzzle in puzzles("hops"):
        boss = dict(re.findall(r"The boss of (\w+) is (\w+)\.", puzzle.text))
        assert len(boss) == puzzle.facts["people"]
        found = []
        for question in re.findall(r"Who is (.*)\?", puzzle.text):
            depth, name = question.count("the boss of "), question.rsplit(" ", 1)[1]
            assert depth == puzzle.facts["hops"]
            for _ in range(depth):
                name = boss[name]
            assert name not in question
            found.append(name)
        assert tuple(found) == puzzle.answers


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


def test_splits_and_depths_are_covered():
    facts = [puzzle.facts for puzzle in puzzles("hops")]
    assert {fact["hops"] for fact in facts} == {1, 2, 3}
    assert {fact["people"] for fact in facts} == {6, 8, 12, 16}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (("poems", "train", 0, 0), "no puzzle is called 'poems'"),
        (("pairs", "dev", 0, 0), "split must be one of train, validation, test; got 'dev'"),
        (("pairs", "train", 0, -1), "index must be at least 0, got -1"),
    ],
)
def test_bad_addresses_are_refused(address, message):
    with pytest.raises(ValueError, match=message):
        generate(*address)


def test_a_piece_must_begin_at_a_word():
    with pytest.raises(ValueError, match="must begin with a space or a newline, got 'b'"):
        Puzzle((Piece("a"), Piece("b")), {})
