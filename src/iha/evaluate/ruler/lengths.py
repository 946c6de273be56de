"""Samples of the requested length: never longer, and so full that another unit of filler would not fit.

The length covers what the model reads, special tokens included, and the tokens it may generate. Units are words, lines,
entries or documents. A finished prompt is never cut, so needles and questions are whole. Fewer tokens are left unused
than the next unit has.

The tokens of each unit are counted once and cached. Their sums estimate how many units fit. Then the whole prompt is
tokenised, and the estimate is corrected by the difference.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from iha.evaluate.prompts import prompt_text, prompt_tokens


class TooShortError(ValueError):
    """The smallest sample does not fit; `minimum` would."""

    def __init__(self, minimum: int) -> None:
        super().__init__(f"the smallest sample has {minimum} tokens")
        self.minimum = minimum


class TokenCounter:
    def __init__(self, tokenizer: Any, chat: bool = False) -> None:
        if tokenizer is None:
            raise ValueError("RULER's prompts have a length in tokens: a tokenizer is needed")
        self.tokenizer = tokenizer
        self.chat = chat
        self._fast = getattr(tokenizer, "backend_tokenizer", None)
        self._pieces: dict[str, int] = {}
        self._running: dict[str, RunningSum] = {}
        ending = prompt_tokens(tokenizer, "a") != list(tokenizer("a")["input_ids"])
        self._drops_end = ending and not chat

    def prompt(self, prompt: str, prefix: str) -> int:
        """Tokens that the model reads: `len(prompt_tokens(...))`, without building the list where possible."""
        if self._fast is None:
            return len(prompt_tokens(self.tokenizer, prompt, prefix, self.chat))
        text = prompt_text(self.tokenizer, prompt, prefix, self.chat)
        encoded = self._fast.encode_batch_fast([text], add_special_tokens=not self.chat)
        return len(encoded[0]) - self._drops_end

    def pieces(self, texts: list[str], remember: bool = True) -> list[int]:
        """Tokens of each text alone, without special tokens."""
        if not remember:
            return self._alone(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self._pieces]
        self._pieces.update(zip(new, self._alone(new), strict=True))
        return [self._pieces[text] for text in texts]

    def running(self, name: str, source: Callable[[], Iterable[str]]) -> "RunningSum":
        """Token sums of a sequence that all samples share, counted once."""
        if name not in self._running:
            self._running[name] = RunningSum(self, source())
        return self._running[name]

    def _alone(self, texts: list[str]) -> list[int]:
        if not texts:
            return []
        if self._fast is not None:
            return [len(encoded) for encoded in self._fast.encode_batch_fast(texts, add_special_tokens=False)]
        return [len(ids) for ids in self.tokenizer(texts, add_special_tokens=False)["input_ids"]]


@dataclass
class RunningSum:
    """`total(n)`: tokens of the first n pieces of a finite or infinite sequence, read only as far as needed."""

    counter: TokenCounter
    source: Iterable[str]
    remember: bool = True  # other samples use the same pieces
    _sums: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self._iterator = iter(self.source)

    def total(self, n: int) -> int:
        while len(self._sums) <= n:
            texts = list(islice(self._iterator, max(n + 1 - len(self._sums), 256)))
            if not texts:
                raise IndexError(f"only {len(self._sums) - 1} pieces, {n} asked for")
            for count in self.counter.pieces(texts, self.remember):
                self._sums.append(self._sums[-1] + count)
        return self._sums[n]


@dataclass(frozen=True)
class Rendered:
    prompt: str
    prefix: str
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A sample before its length is known."""

    answers: list[str]
    render: Callable[[int], Rendered]  # the prompt with this many units
    weight: Callable[[int], int]  # approximate tokens of this many units; must not decrease
    minimum: int = 1
    maximum: int | None = None  # units available


def smallest(draft: Draft, counter: TokenCounter) -> int:
    rendered = draft.render(draft.minimum)
    return counter.prompt(rendered.prompt, rendered.prefix)


def fit(draft: Draft, budget: int, counter: TokenCounter) -> tuple[Rendered, int, int]:
    """The draft with as many units as fit into `budget` tokens, those units, and its tokens."""

    def tokens(n: int) -> tuple[Rendered, int]:
        rendered = draft.render(n)
        return rendered, counter.prompt(rendered.prompt, rendered.prefix)

    units = draft.minimum
    best, count = tokens(units)
    if count > budget:
        raise TooShortError(count)
    too_many = None if draft.maximum is None else draft.maximum + 1
    while units + 1 != too_many:
        # `units` fit, `too_many` do not. What `units` really take corrects the sums for those in between.
        guess = _most(draft, budget - count + draft.weight(units), units, too_many)
        if guess == units:
            break  # the next unit has more tokens than there is room
        rendered, seen = tokens(guess)
        if seen <= budget:
            best, units, count = rendered, guess, seen
            continue
        too_many = guess
        # The sums are too low by some tokens. Subtract these and it fits, unless the error grows.
        lower = _most(draft, budget - (seen - draft.weight(guess)), units, too_many)
        rendered, seen = tokens(lower) if lower > units else (best, count)
        if seen <= budget:
            best, units, count = rendered, lower, seen
            if _over(draft, units + 1, budget - count + draft.weight(units)):
                break
        else:
            too_many = lower
    return best, units, count


def _over(draft: Draft, n: int, budget: int) -> bool:
    return (draft.maximum is not None and n > draft.maximum) or draft.weight(n) > budget


def _most(draft: Draft, budget: int, low: int, too_many: int | None) -> int:
    """The largest n in [low, too_many) whose weight is within the budget; low if none is."""
    if too_many is None:
        too_many = low + 64  # then extrapolate from the average so far
        while not _over(draft, too_many, budget):
            low, average = too_many, draft.weight(too_many) / too_many
            too_many += 64 + int((budget - draft.weight(too_many)) / average)
    while too_many - low > 1:
        middle = (low + too_many) // 2
        low, too_many = (low, middle) if _over(draft, middle, budget) else (middle, too_many)
    return low
