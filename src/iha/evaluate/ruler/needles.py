"""Needles in a haystack: eight settings of keys, values and filler."""

import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random

from iha.evaluate.ruler.lengths import Draft, Rendered, RunningSum, TokenCounter
from iha.evaluate.ruler.materials import NOISE, Materials
from iha.evaluate.ruler.settings import NEEDLE_TASKS, NIAH, Needles

DEPTHS = [round(100 * i / 39) for i in range(40)]  # depths of needles in an essay, in percent
Assemble = Callable[[int], tuple[str, list[float]]]  # units to the context, and where in it each needle is, 0 to 1


def needle_draft(name: str, rng: Random, materials: Materials, counter: TokenCounter) -> Draft:
    setting = NEEDLE_TASKS[name]
    draw = _Draw(rng, materials)
    keys = [draw(setting.key) for _ in range(setting.keys)]
    values = {key: [draw(setting.value) for _ in range(setting.values)] for key in keys}
    queries = rng.sample(keys, setting.queries)
    needles = [_sentence(setting, key, value) for key in keys for value in values[key]]
    rng.shuffle(needles)
    seed = rng.random()  # of the needles' places, for any number of units
    assemble: Assemble
    weight: Callable[[int], int]
    if setting.haystack == "essay":
        assemble = _among_sentences(needles, seed, materials)
        weight = counter.running("essay", lambda: (f" {word}" for word in cycle(materials.essays.words))).total
    elif setting.haystack == "noise":
        assemble = _among_lines(needles, seed, lambda n: [NOISE] * n)
        noise = counter.pieces([f"\n{NOISE}"])[0]
        weight = lambda n: n * noise  # noqa: E731
    else:
        lines: list[str] = []
        weight = RunningSum(counter, _other_needles(setting, draw, lines), remember=False).total
        assemble = _among_lines(needles, seed, lambda n: lines[:n])

    def render(n: int) -> Rendered:
        weight(n)  # other needles are made when they are counted
        context, depths = assemble(n)
        prompt, prefix = _question(setting, queries)
        return Rendered(
            prompt.replace("{context}", context),
            prefix,
            {"needles": needles, "depths": [round(depth, 4) for depth in depths]},
        )

    answers = [value for query in queries for value in values[query]]
    return Draft(answers, render, weight, minimum=1 if setting.haystack == "essay" else len(needles))


class _Draw:
    """Random distinct keys and values, so that each answer has one place."""

    def __init__(self, rng: Random, materials: Materials) -> None:
        self.rng, self.materials, self.drawn = rng, materials, set[str]()

    def __call__(self, kind: str) -> str:
        while (text := self._text(kind)) in self.drawn:
            pass
        self.drawn.add(text)
        return text

    def _text(self, kind: str) -> str:
        if kind == "numbers":
            return str(self.rng.randint(10**6, 10**7 - 1))
        if kind == "uuids":
            return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        return "-".join(self.rng.choice(words) for words in self.materials.keys)


def _sentence(setting: Needles, key: str, value: str) -> str:
    return f"One of the special magic {setting.value} for {key} is: {value}."


def _other_needles(setting: Needles, draw: _Draw, lines: list[str]) -> Iterator[str]:
    while True:
        lines.append(_sentence(setting, draw(setting.key), draw(setting.value)))
        yield f"\n{lines[-1]}"


def _question(setting: Needles, queries: list[str]) -> tuple[str, str]:
    """Prompt, {context} still to be filled in, and the answer's beginning."""
    template, prefix, kind = NIAH.template, NIAH.prefix, setting.value
    if setting.singular:  # as NVIDIA does it: by replacing words in the template
        template, prefix = (
            text.replace("Some", "A").replace("are all", "is").replace("are", "is") for text in (template, prefix)
        )
        kind = kind.removesuffix("s")
    query = queries[0] if len(queries) == 1 else ", ".join(queries[:-1]) + ", and " + queries[-1]
    return template.format(type=kind, query=query, context="{context}"), prefix.format(type=kind, query=query)


def _among_lines(needles: list[str], seed: float, filler: Callable[[int], list[str]]) -> Assemble:
    """Each needle before a different random line."""

    def assemble(n: int) -> tuple[str, list[float]]:
        lines = filler(n)
        places = sorted(Random(f"{seed}/{n}").sample(range(n), len(needles)))
        for already, (place, needle) in enumerate(zip(places, needles, strict=True)):
            lines.insert(place + already, needle)
        return "\n".join(lines), [place / n for place in places]

    return assemble


def _among_sentences(needles: list[str], seed: float, materials: Materials) -> Assemble:
    """The first n words, the needles between sentences at distinct depths."""
    essays = materials.essays

    def assemble(n: int) -> tuple[str, list[float]]:
        rounds, rest = divmod(n, len(essays.words))
        words = essays.words * rounds + essays.words[:rest]
        last = essays.sentences[: bisect_left(essays.sentences, rest)]  # sentences that begin in the last round
        starts = [start + r * len(essays.words) for r in range(rounds) for start in essays.sentences]
        starts += [start + rounds * len(essays.words) for start in last]
        depths = sorted(Random(seed).sample(DEPTHS, len(needles)))
        places = [[*starts, n][int(len(starts) * depth / 100)] for depth in depths]
        parts, done = [], 0
        for place, needle in zip(places, needles, strict=True):
            parts += [*words[done:place], needle]
            done = place
        return " ".join([*parts, *words[done:]]), [place / n for place in places]

    return assemble
