"""Variable tracking: a chain of assignments scattered in noise, and one worked example before the question."""

from itertools import pairwise
from random import Random
from string import ascii_uppercase

from iha.evaluate.ruler.lengths import Draft, Rendered, TokenCounter, fit, smallest
from iha.evaluate.ruler.materials import NOISE
from iha.evaluate.ruler.settings import VARIABLE_TRACKING

HOPS = 4
EXAMPLE_TOKENS = 500  # NVIDIA's; in samples under 2048 tokens a quarter of the sample


def tracking_draft(rng: Random, length: int, counter: TokenCounter) -> Draft:
    example = _chain_draft(rng, letters=3, counter=counter)
    # Even the shortest sample has the smallest example.
    shown = fit(example, max(smallest(example, counter), min(EXAMPLE_TOKENS, length // 4)), counter)[0]
    before = f"{shown.prompt}{shown.prefix} {' '.join(example.answers)}\n\n"
    question = _chain_draft(rng, letters=5, counter=counter)

    def render(n: int) -> Rendered:
        rendered = question.render(n)
        return Rendered(before + rendered.prompt, rendered.prefix, rendered.meta)

    return Draft(question.answers, render, question.weight, question.minimum)


def _chain_draft(rng: Random, letters: int, counter: TokenCounter) -> Draft:
    names: list[str] = []
    while len(names) < HOPS + 1:
        name = "".join(rng.choices(ascii_uppercase, k=letters))
        if name != "VAR" and name not in names:
            names.append(name)
    value = str(rng.randint(10000, 99999))
    chain = [
        f"VAR {names[0]} = {value}",
        *(f"VAR {new} = VAR {old} " for old, new in pairwise(names)),
    ]
    seed, noise = rng.random(), counter.pieces([f"\n{NOISE}"])[0]

    def render(n: int) -> Rendered:
        lines = [NOISE] * n
        places = sorted(Random(f"{seed}/{n}").sample(range(n), len(chain)))
        for already, (place, assignment) in enumerate(zip(places, chain, strict=True)):
            lines.insert(place + already, assignment)
        prompt = VARIABLE_TRACKING.template.format(context="\n".join(lines), query=value)
        prefix = VARIABLE_TRACKING.prefix.format(count=len(names), query=value)
        return Rendered(prompt, prefix, {"needles": chain, "depths": [round(place / n, 4) for place in places]})

    return Draft(names, render, lambda n: n * noise, minimum=len(chain))
