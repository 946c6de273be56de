"""Documents are a function of their address alone, and their answers are part of their text."""

import subprocess
import sys

import pytest

from iha.train.puzzles import PUZZLES, Piece, Puzzle, generate
from train.puzzles.addresses import puzzles


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
