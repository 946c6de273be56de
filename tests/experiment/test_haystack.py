"""Samples have the length asked for, their facts in them once, and an answer that follows."""

import re

import pytest
from transformers import PreTrainedTokenizerFast

from iha.evaluate.ruler.lengths import TokenCounter
from iha.experiment.haystack import TASKS, sample, samples
from iha.train.puzzles.hops import chain
from iha.train.tokenise import END, byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("length", [900, 1700])
def test_as_long_as_asked_for(tokenizer, task, length):
    for puzzle in samples(task, length, 3, 0, tokenizer):
        tokens = len(puzzle.text.encode())
        assert length - 70 <= tokens <= length  # bytes; the longest sentence has fewer than 70 of them


@pytest.mark.parametrize("task", ["single", "multikey-4", "multikey-8", "multikey-all"])
def test_the_needle_is_there_once(tokenizer, task):
    (puzzle,) = samples(task, 1500, 1, 3, tokenizer)
    (key,) = re.findall(r"What is the special magic number for (\w+)", puzzle.text)
    assert re.findall(rf"for {key} is: (\d+)\.", puzzle.text) == list(puzzle.answers)
    needles = len(re.findall(r"One of the special magic", puzzle.text))
    assert needles == {"single": 1, "multikey-4": 4, "multikey-8": 8}.get(task, needles)
    assert needles > 8 or task != "multikey-all"


def test_many_needles_come_again_but_not_the_one_asked_for(tokenizer):
    (puzzle,) = samples("multikey-all", 8000, 1, 3, tokenizer)
    told = re.findall(r"for (\w+) is: (\d+)\.", puzzle.text)
    (key,) = re.findall(r"What is the special magic number for (\w+)", puzzle.text)
    assert len(told) > len(set(told)) == len(dict(told)) == 64
    assert [value for other, value in told if other == key] == list(puzzle.answers)


def test_a_pair_is_asked_for(tokenizer):
    for length, fewest in ((400, 40), (4000, 64)):  # the second is longer than all pairs: others come again
        (puzzle,) = samples("pairs-all", length, 1, 3, tokenizer)
        told, again = puzzle.text.split("\n")
        pairs = re.findall(r" (\w+) (\d+)", told)
        assert len(set(pairs)) == len(dict(pairs)) >= fewest
        (key,) = re.findall(r"Again: (\w+)", again)
        assert [value for other, value in pairs if other == key] == list(puzzle.answers)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_hops_are_followed(tokenizer, depth):
    for puzzle in samples(f"hops-{depth}", 1200, 5, 1, tokenizer):
        context, question = puzzle.text.split("\n")
        boss = dict(re.findall(r" (\w+) (\w+),", context))
        times, name, _ = question.split()
        assert times == {1: "Once", 2: "Twice", 3: "Thrice"}[depth]
        assert (chain(boss, name, depth)[-1],) == puzzle.answers


def test_the_same_facts_at_every_length(tokenizer):
    counter = TokenCounter(tokenizer)
    short, long = (sample("multikey-4", length, 0, 7, counter) for length in (800, 2400))
    assert short.answers == long.answers
    assert short.text.split("\n")[-1] == long.text.split("\n")[-1]
    assert long.text.count("The grass is green.") > short.text.count("The grass is green.")


def test_lengths_that_cannot_be_are_refused_with_the_reason(tokenizer):
    with pytest.raises(ValueError, match="single does not fit into 100 tokens: the smallest sample has"):
        samples("single", 100, 1, 0, tokenizer)
    with pytest.raises(ValueError, match=r"pairs-all has \d+ facts, too few for 90000 tokens"):
        samples("pairs-all", 90_000, 1, 0, tokenizer)


def test_rulers_own_samples_have_their_answer(tokenizer):
    pytest.importorskip("wonderwords")
    (puzzle,) = samples("niah_multikey_2", 1024, 1, 0, tokenizer)
    assert re.search(rf"is: {puzzle.answers[0]}\.", puzzle.text)
    assert puzzle.text.endswith(f"mentioned in the provided text is {puzzle.answers[0]}")
