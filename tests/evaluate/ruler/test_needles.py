"""Needles found again by reading the prompt, as a model would have to."""

import re

import pytest
from material import byte_tokenizer

from iha.evaluate.protocol import Source
from iha.evaluate.ruler.settings import NEEDLE_TASKS
from iha.evaluate.ruler.tasks import RulerTask

NEEDLE = re.compile(r"One of the special magic (numbers|uuids) for ([\w-]+) is: ([\w-]+)\.")


@pytest.mark.parametrize("setting", NEEDLE_TASKS)
def test_the_answers_are_what_the_needles_say(setting, materials):
    expected = NEEDLE_TASKS[setting]
    source = Source(materials, limit=4, seed=2, tokenizer=byte_tokenizer())
    for question in RulerTask(setting, 5000).questions(source):
        context, _, asked = question.prompt.rpartition("\nWhat ")
        found = {}
        for kind, key, value in NEEDLE.findall(context):
            assert kind == expected.value
            found.setdefault(key, []).append(value)
        queries = re.search(r"for (.*) mentioned in the provided text\?", asked)[1]
        keys = re.split(r", and |, ", queries)
        assert len(keys) == expected.queries
        assert sorted(value for key in keys for value in found[key]) == sorted(question.reference)
        assert len(question.reference) == expected.queries * expected.values
        if expected.haystack != "needle":  # other needles are the filler there
            assert len(found) == expected.keys
        values = [value for found_values in found.values() for value in found_values]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("setting", NEEDLE_TASKS)
def test_singular_and_plural(setting, materials):
    (question,) = RulerTask(setting, 5000).questions(Source(materials, limit=1, tokenizer=byte_tokenizer()))
    one = NEEDLE_TASKS[setting].singular
    assert question.prompt.startswith("A special magic " if one else "Some special magic ")
    assert question.prefix.endswith(" is" if one else " are")
    assert ("What is the special magic " in question.prompt) == one


def test_needles_are_everywhere(materials):
    source = Source(materials, limit=60, tokenizer=byte_tokenizer())
    for setting in ("niah_single_1", "niah_single_2", "niah_multikey_2"):
        depths = [d for q in RulerTask(setting, 4000).questions(source) for d in q.meta["depths"]]
        assert min(depths) < 0.1
        assert max(depths) > 0.85
        assert 0.35 < sum(depths) / len(depths) < 0.65
