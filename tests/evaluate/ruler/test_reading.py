"""Questions about documents: where the gold ones are, and what surrounds them."""

import re
from random import Random

import pytest
from material import byte_tokenizer

from iha.evaluate.protocol import Source
from iha.evaluate.ruler.lengths import TokenCounter
from iha.evaluate.ruler.materials import Materials
from iha.evaluate.ruler.reading import reading_draft
from iha.evaluate.ruler.tasks import RulerTask


@pytest.mark.parametrize("setting", ["qa_1", "qa_2"])
def test_gold_documents_are_where_the_sample_says(setting, materials):
    library = Materials(materials).library({"qa_1": "squad", "qa_2": "hotpotqa"}[setting])
    questions = RulerTask(setting, 6000).questions(Source(materials, limit=6, tokenizer=byte_tokenizer()))
    for question, reading in zip(questions, library.readings, strict=False):
        context = question.prompt.partition("given documents.\n\n")[2].partition("\n\nAnswer the question")[0]
        parts = re.split(r"(?:^|\n\n)Document (\d+):\n", context)[1:]
        numbers, documents = [int(number) for number in parts[::2]], parts[1::2]
        assert numbers == list(range(1, len(documents) + 1)) == list(range(1, question.meta["documents"] + 1))
        gold = [documents[number - 1] for number in question.meta["gold_documents"]]
        assert gold == [library.documents[index] for index in reading.gold]
        assert question.prompt.endswith(f"Question: {reading.question}")
        assert question.reference == reading.answers


def test_gold_comes_first_then_related_then_others_then_all_again(materials):
    """As a sample grows: what it has so far is always the most relevant."""
    library = Materials(materials).squad
    reading = library.readings[0]
    draft = reading_draft(reading, library, Random(1), TokenCounter(byte_tokenizer()))
    own = {*reading.gold, *reading.related}

    def documents(n):
        return [library.documents.index(d) for d in re.split(r"\n\nDocument \d+:\n", "\n\n" + _context(draft, n))[1:]]

    assert draft.minimum == len(reading.gold)
    assert sorted(documents(len(reading.gold))) == sorted(reading.gold)
    assert set(documents(len(own))) == own
    everything = len(library.documents)
    assert sorted(documents(everything)) == list(range(everything))
    assert len(documents(everything + 3)) == everything + 3


def _context(draft, n):
    return draft.render(n).prompt.partition("given documents.\n\n")[2].partition("\n\nAnswer the question")[0]
