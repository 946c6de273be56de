"""Counting words: the ten common ones of a numbered list, the three most frequent ones of a coded text."""

import math
from itertools import count
from random import Random
from string import ascii_lowercase

import numpy as np

from iha.evaluate.ruler.lengths import Draft, Rendered, RunningSum, TokenCounter, smallest
from iha.evaluate.ruler.materials import Materials
from iha.evaluate.ruler.settings import COMMON_WORDS, FREQUENT_WORDS

COMMON = 10
SHORT = 4096  # below this NVIDIA has smaller lists
WORD_LENGTH, TOKENS_PER_CODED_WORD, ALPHA = 6, 50, 2.0


def common_words_draft(rng: Random, length: int, budget: int, materials: Materials, counter: TokenCounter) -> Draft:
    repeats, others = (6, 1) if length < SHORT else (30, 3)  # of the common words, and of the rest
    shown = rng.sample(materials.words, 20 if length < SHORT else 40)
    example = _numbered_list(shown, *((3, 1) if length < SHORT else (10, 3)), rng)
    before = f"{_common_prompt(example)}{COMMON_WORDS.prefix} {_numbered(shown[:COMMON])}\n"
    seed = rng.random()

    def draft_of(words: list[str]) -> Draft:
        """n words are the first n; the ten first are the common ones."""
        sums = RunningSum(counter, (f" {word}" for word in words))
        numbers = counter.running("numbers", lambda: (f" {i}." for i in count(1)))

        def weight(n: int) -> int:
            entries = COMMON * repeats + (n - COMMON) * others
            common = sums.total(COMMON)
            return repeats * common + others * (sums.total(n) - common) + numbers.total(entries)

        def render(n: int) -> Rendered:
            context = _numbered_list(words[:n], repeats, others, Random(f"{seed}/{n}"))
            return Rendered(before + _common_prompt(context), COMMON_WORDS.prefix, {"distinct_words": n})

        return Draft(words[:COMMON], render, weight, minimum=COMMON + 1, maximum=len(words))

    small = draft_of(rng.sample(materials.words, len(materials.words)))
    if _all_tokens(small, counter) > budget:
        return small
    dictionary = materials.dictionary
    # More words than this cannot fit: each takes a token for its number and one for itself, `others` times.
    return draft_of(rng.sample(dictionary, min(len(dictionary), budget // (2 * others))))


def _all_tokens(draft: Draft, counter: TokenCounter) -> int:
    """About the tokens of the draft with all its units."""
    assert draft.maximum is not None
    return smallest(draft, counter) - draft.weight(draft.minimum) + draft.weight(draft.maximum)


def _numbered_list(words: list[str], repeats: int, others: int, rng: Random) -> str:
    entries = words[:COMMON] * repeats + words[COMMON:] * others
    rng.shuffle(entries)
    return _numbered(entries)


def _numbered(words: list[str]) -> str:
    return " ".join(f"{i}. {word}" for i, word in enumerate(words, 1))


def _common_prompt(context: str) -> str:
    return COMMON_WORDS.template.format(context=context)


def frequent_words_draft(rng: Random, budget: int, counter: TokenCounter) -> Draft:
    """Coded words by a zeta distribution: the word of rank r makes up r**-2 / zeta(2) of n. The first rank is dots."""
    size = max(budget // TOKENS_PER_CODED_WORD, 4)
    vocabulary: dict[str, None] = {"...": None}
    while len(vocabulary) < size:
        vocabulary["".join(rng.choices(ascii_lowercase, k=WORD_LENGTH))] = None
    words = list(vocabulary)
    tokens = np.array(counter.pieces([f" {word}" for word in words]))
    share = np.arange(1, size + 1) ** -ALPHA / (math.pi**2 / 6)
    seed = rng.random()

    def times(n: int) -> np.ndarray:
        return (n * share).astype(int)

    def render(n: int) -> Rendered:
        text = [word for word, number in zip(words, times(n), strict=True) for _ in range(number)]
        Random(f"{seed}/{n}").shuffle(text)
        prompt = FREQUENT_WORDS.template.format(context=" ".join(text))
        return Rendered(prompt, FREQUENT_WORDS.prefix, {"times": [int(number) for number in times(n)[:6]]})

    def clear(n: int) -> bool:
        """The three answers are more frequent than any other word."""
        ordered = times(n)[1:5]
        return bool(ordered[2] > 0 and (np.diff(ordered) < 0).all())

    # Every larger n is unambiguous too: the counts of ranks 4 and 5 differ by at least one.
    always = math.ceil(1 / (share[3] - (share[4] if size > 4 else 0)))
    minimum = next(n for n in range(always, 0, -1) if not clear(n - 1))
    return Draft(words[1:4], render, lambda n: int((times(n) * tokens).sum()), minimum=minimum)
