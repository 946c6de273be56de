"""Counting tokens, and filling a length with as many units as fit."""

import pytest
from material import byte_tokenizer

from iha.evaluate.ruler.lengths import Draft, Rendered, RunningSum, TokenCounter, TooShortError, fit


def test_special_tokens_are_counted():
    counter = TokenCounter(byte_tokenizer(bos=True))
    assert counter.prompt("four", " five") == 1 + 9  # <s>, and no </s> behind
    assert counter.pieces(["four", "", "éa"]) == [4, 0, 3]
    with pytest.raises(ValueError, match="a tokenizer is needed"):
        TokenCounter(None)


def test_the_smallest_sample_that_does_not_fit_says_what_it_needs():
    draft = Draft([], lambda n: Rendered("x" * (10 + 7 * n), ""), lambda n: 7 * n, minimum=3)
    with pytest.raises(TooShortError) as refused:
        fit(draft, 30, TokenCounter(byte_tokenizer()))
    assert refused.value.minimum == 31
    assert fit(draft, 31, TokenCounter(byte_tokenizer()))[1:] == (3, 31)


def test_fit_finds_the_largest_number_of_units_however_wrong_the_sums_are():
    """Units of 7 bytes that are said to have 5, 7 or 11."""
    counter = TokenCounter(byte_tokenizer())
    for said in (5, 7, 11):
        draft = Draft([], lambda n: Rendered("x" * (10 + 7 * n), ""), lambda n: said * n)  # noqa: B023
        for budget in range(17, 400):
            _, units, tokens = fit(draft, budget, counter)
            assert tokens == 10 + 7 * units <= budget
            assert budget - tokens < max(said, 7)


def test_a_running_sum_reads_no_further_than_it_must():
    counter = TokenCounter(byte_tokenizer())
    read = []

    def source():
        for i in range(1000):
            read.append(i)
            yield "x" * (i % 3)

    sums = RunningSum(counter, source())
    assert sums.total(300) == sum(i % 3 for i in range(300))
    assert len(read) <= 512
    with pytest.raises(IndexError):
        sums.total(1001)
