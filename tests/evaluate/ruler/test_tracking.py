"""Chains of assignments, followed again by reading the prompt."""

import re

from material import byte_tokenizer

from iha.evaluate.protocol import Source
from iha.evaluate.ruler.tasks import RulerTask
from iha.evaluate.ruler.tracking import HOPS


def variables_of(text: str, value: str) -> list[str]:
    """All variables that hold the value, in the order in which they get it."""
    held: dict[str, str] = {}
    for name, number, other in re.findall(r"VAR (\w+) = (?:(\d+)|VAR (\w+))", text):
        held[name] = number or held[other]
    return [name for name, number in held.items() if number == value]


def test_the_answers_follow_from_the_assignments(materials):
    source = Source(materials, limit=20, seed=4, tokenizer=byte_tokenizer())
    for question in RulerTask("vt", 4000).questions(source):
        example, _, own = question.prompt.partition("they are: ")
        shown, _, text = own.partition("\n\n")
        value = re.search(r"assigned the value (\d+) in", text)[1]
        assert variables_of(text, value) == question.reference
        assert len(question.reference) == HOPS + 1
        assert len(set(question.reference)) == HOPS + 1
        # The worked example before it is right, too.
        value = re.search(r"assigned the value (\d+) in", example)[1]
        assert " ".join(variables_of(example, value)) == shown.strip()


def test_assignments_come_in_order_and_anywhere(materials):
    """A variable is assigned before it is read; places are spread over the whole text."""
    source = Source(materials, limit=60, tokenizer=byte_tokenizer())
    depths = []
    for question in RulerTask("vt", 4000).questions(source):
        assert question.meta["depths"] == sorted(question.meta["depths"])
        depths += question.meta["depths"]
    assert min(depths) < 0.1
    assert max(depths) > 0.85
    assert 0.35 < sum(depths) / len(depths) < 0.65
