"""Common and frequent words, counted again in the prompt."""

import math
import re
from collections import Counter
from itertools import pairwise

import pytest
from material import byte_tokenizer

from iha.evaluate.protocol import Source
from iha.evaluate.ruler.tasks import RulerTask


@pytest.mark.parametrize(("length", "repeats", "others"), [(3500, 6, 1), (8000, 30, 3)])
def test_the_ten_common_words_are_the_most_common(length, repeats, others, materials):
    source = Source(materials, limit=3, seed=1, tokenizer=byte_tokenizer())
    for question in RulerTask("cwe", length).questions(source):
        _, _, own = question.prompt.rpartition("Below is a numbered list of words.")
        entries = re.findall(r"(\d+)\. (\S+)", own)
        assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
        counts = Counter(word for _, word in entries)
        assert {word for word, _ in counts.most_common(10)} == set(question.reference)
        assert {counts[word] for word in question.reference} == {repeats}
        assert {counts[word] for word in counts.keys() - set(question.reference)} == {others}
        assert len(counts) == question.meta["distinct_words"]


def test_the_example_shows_its_own_common_words(materials):
    (question,) = RulerTask("cwe", 8000).questions(Source(materials, limit=1, tokenizer=byte_tokenizer()))
    example, _, rest = question.prompt.partition("most often in the list are:")
    counts = Counter(word for _, word in re.findall(r"(\d+)\. (\S+)", example))
    shown = re.findall(r"\d+\. (\S+)", rest.partition("\nBelow is")[0])
    assert {word for word, _ in counts.most_common(10)} == set(shown)


def test_the_three_frequent_words_are_the_most_frequent(materials):
    """Without the dots, which are more frequent still; in the proportions of a zeta distribution."""
    source = Source(materials, limit=5, seed=3, tokenizer=byte_tokenizer())
    for question in RulerTask("fwe", 6000).questions(source):
        text = question.prompt.partition("coded words. ")[2].partition("\nQuestion:")[0]
        counts = Counter(text.split())
        ranked = counts.most_common(5)
        assert ranked[0][0] == "..."
        assert [word for word, _ in ranked[1:4]] == question.reference
        assert all(more > fewer for (_, more), (_, fewer) in pairwise(ranked))
        units = question.meta["units"]
        for rank, (_, count) in enumerate(ranked, 1):
            assert count == math.floor(units * rank**-2.0 / (math.pi**2 / 6))
