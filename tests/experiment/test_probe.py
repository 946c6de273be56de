"""A model that knows the answers is right, one that does not is not, and both as `generate` would say."""

import pytest
import torch

from iha.experiment.probe import KINDS, accuracies, ask, questions
from iha.train.puzzles import generate
from iha.train.tokenise import TextTokenizer, byte_tokenizer


@pytest.fixture(scope="module")
def asked():
    return questions(TextTokenizer(byte_tokenizer(), None, is_bytes=True), context=2000, count=12)


class Oracle(torch.nn.Module):
    """Gives the next token of the row with probability one; `wrong` tokens of every answer are replaced."""

    def __init__(self, asked, wrong=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.wrong = {}
        for question in asked if wrong else ():
            self.wrong[tuple(question.tokens.tolist())] = [end - 1 for _, end in question.answers]

    def forward(self, input_ids, use_cache):
        following = torch.roll(input_ids, -1, 1)
        for row, tokens in zip(following, input_ids.tolist(), strict=True):
            for known, places in self.wrong.items():
                if tokens[: len(known)] == list(known):
                    row[[place - 1 for place in places]] += 1
        return type("Output", (), {"logits": torch.nn.functional.one_hot(following, 512).float()})


def test_the_oracle_is_always_right(asked):
    found = accuracies(Oracle(asked), asked)
    assert set(KINDS) <= set(found)
    assert set(found.values()) == {1.0}


def test_one_wrong_token_spoils_an_answer(asked):
    assert set(accuracies(Oracle(asked, wrong=True), asked).values()) == {0.0}


def test_pieces_join_to_the_text(asked):
    puzzle = generate("hops", "test", 0, 3)
    question = ask(TextTokenizer(byte_tokenizer(), None, is_bytes=True), puzzle, "hops")
    assert bytes(question.tokens.tolist()).decode() == puzzle.text
    spans = [bytes(question.tokens[begin:end].tolist()).decode().strip() for begin, end in question.answers]
    assert tuple(spans) == puzzle.answers


def test_what_does_not_fit_is_left_out(asked):
    assert max(len(question.tokens) for question in asked) <= 2000
