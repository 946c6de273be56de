"""Retrieval at a given length: RULER's own tasks where a small model can be asked, and the same tasks to scale.

RULER's keys are rare words and its numbers have seven digits; a model of a million parameters that has seen neither
answers nothing, at any length. To scale, the facts are those of the puzzles that it was trained on. Only the length is
new: noise between the facts, or as many facts as fit, by RULER's own rule (`iha.evaluate.ruler.lengths.fit`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from iha.evaluate.protocol import Source
from iha.evaluate.ruler.lengths import Draft, Rendered, TokenCounter, TooShortError, fit
from iha.evaluate.ruler.tasks import RulerTask
from iha.train.puzzles import Piece, Puzzle
from iha.train.puzzles.hops import BOSSES, chain, fact, question
from iha.train.puzzles.retrieval import NEEDLES, NOISE, PAIRS, VALUES, needle, needle_question, pair, pairs_question
from iha.train.puzzles.words import NAMES, WORDS

ANSWER_TOKENS = 8  # room for the answer: a number of two digits, or a name
PEOPLE = 12  # of the chained facts
REPEATS = 64  # of all facts but the one asked for: enough for 8000 tokens
# RULER's tasks with one answer. The first two are made from word lists alone, the others need the essays.
OWN = ("niah_single_1", "niah_multikey_2")
WITH_ESSAYS = ("niah_single_2", "niah_multikey_1")


@dataclass(frozen=True)
class Facts:
    """What a sample consists of before its length is known."""

    facts: list[str]  # each begins with a space or a newline
    question: str
    answer: str
    before: str = ""  # the first words of the text
    fill: bool = False  # the facts themselves fill the text; the first one is asked for


def needles(rng: Random, keys: int) -> Facts:
    """RULER's Single (one key) and Multi-Key (several), in noise."""
    drawn = rng.sample(WORDS, keys)
    values = [str(number) for number in rng.choices(VALUES, k=keys)]
    facts = [needle(key, value) for key, value in zip(drawn, values, strict=True)]
    return Facts(facts, needle_question(drawn[0]), values[0], NEEDLES)


def all_needles(rng: Random) -> Facts:
    """RULER's hardest Multi-Key: the haystack consists of needles."""
    made = needles(rng, len(WORDS))
    return Facts(_repeated(rng, made.facts), made.question, made.answer, made.before, fill=True)


def all_pairs(rng: Random) -> Facts:
    """Pairs and nothing else."""
    keys = rng.sample(WORDS, len(WORDS))
    values = [str(rng.choice(VALUES)) for _ in keys]
    facts = [pair(key, value) for key, value in zip(keys, values, strict=True)]
    return Facts(_repeated(rng, facts), pairs_question(keys[0]), values[0], PAIRS, fill=True)


def _repeated(rng: Random, facts: list[str]) -> list[str]:
    """There are few keys, so in long texts the facts come again, all but the first, which is asked for."""
    return facts + [other for _ in range(REPEATS) for other in rng.sample(facts[1:], len(facts) - 1)]


def hops(rng: Random, depth: int) -> Facts:
    """Chained facts, in noise."""
    names = rng.sample(NAMES, PEOPLE)
    while True:
        boss = {name: rng.choice([other for other in names if other != name]) for name in names}
        able = [name for name in names if name not in chain(boss, name, depth)]
        if able:
            break
    asked = rng.choice(able)
    facts = [fact(name, boss[name]) for name in rng.sample(names, len(names))]
    return Facts(facts, question(asked, depth), chain(boss, asked, depth)[-1], BOSSES)


TASKS: dict[str, Callable[[Random], Facts]] = {
    "single": lambda rng: needles(rng, 1),
    "multikey-4": lambda rng: needles(rng, 4),
    "multikey-8": lambda rng: needles(rng, 8),
    "multikey-all": all_needles,
    "pairs-all": all_pairs,
    "hops-1": lambda rng: hops(rng, 1),
    "hops-2": lambda rng: hops(rng, 2),
    "hops-3": lambda rng: hops(rng, 3),
}


def sample(task: str, length: int, seed: int, index: int, counter: TokenCounter) -> Puzzle:
    """A text of `length` tokens at most, answer included, so full that one more sentence would not fit."""
    made = TASKS[task](Random(f"{seed}/{task}/{index}"))  # the same facts at every length
    draft = _filled(made, counter, index) if made.fill else _in_noise(made, counter, index)
    rendered, units, _ = fit(draft, length - ANSWER_TOKENS, counter)
    if units == draft.maximum:
        raise ValueError(f"{task} has {units} facts, too few for {length} tokens")
    pieces = (Piece(rendered.prompt), Piece(rendered.prefix), Piece(f" {made.answer}", is_answer=True))
    return Puzzle(pieces, {"length": length})


def own_sample(task: str, length: int, seed: int, count: int, tokenizer: Any, data: Path | None) -> list[Puzzle]:
    """RULER's own samples. Its length includes 128 tokens for the answer, of which ours takes a few."""
    source = Source(data=data, limit=count, seed=seed, tokenizer=tokenizer)
    return [
        Puzzle((Piece(question.prompt + question.prefix), Piece(f" {answer}", is_answer=True)), {"length": length})
        for question in RulerTask(task, length).generate(source)
        for answer in question.reference
    ]


def samples(task: str, length: int, count: int, seed: int, tokenizer: Any, data: Path | None = None) -> list[Puzzle]:
    """ValueError, with the reason, where the task cannot have this length."""
    if task not in TASKS:
        return own_sample(task, length, seed, count, tokenizer, data)
    counter = TokenCounter(tokenizer)
    try:
        return [sample(task, length, seed, index, counter) for index in range(count)]
    except TooShortError as error:
        raise ValueError(f"{task} does not fit into {length} tokens: {error}") from None


def _in_noise(made: Facts, counter: TokenCounter, index: int) -> Draft:
    noise = counter.running("scale-model noise", lambda: _endless(NOISE))

    def render(n: int) -> Rendered:
        rng = Random(f"{index}/{n}")
        sentences = [[NOISE[i % len(NOISE)]] for i in range(n)]
        places = sorted(rng.randrange(n) for _ in made.facts)
        for place, sentence in zip(places, rng.sample(made.facts, len(made.facts)), strict=True):
            sentences[place].insert(0, sentence)
        text = "".join(sentence for group in sentences for sentence in group)
        return Rendered(_begun(made.before, text), made.question)

    return Draft([made.answer], render, noise.total, minimum=1)


def _filled(made: Facts, counter: TokenCounter, index: int) -> Draft:
    tokens = counter.pieces(made.facts, remember=False)

    def render(n: int) -> Rendered:
        return Rendered(_begun(made.before, "".join(Random(f"{index}/{n}").sample(made.facts[:n], n))), made.question)

    return Draft([made.answer], render, lambda n: sum(tokens[:n]), minimum=1, maximum=len(made.facts))


def _begun(before: str, text: str) -> str:
    """No space at the beginning of a line, as in the puzzles."""
    return before + text.removeprefix(" ") if before.endswith("\n") or not before else before + text


def _endless(sentences: Sequence[str]) -> Any:
    while True:
        yield from sentences
