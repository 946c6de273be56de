"""Questions about documents: the ones that hold the answer, others of the same question, and random ones."""

from collections.abc import Iterator
from itertools import count, cycle
from random import Random

from iha.evaluate.ruler.lengths import Draft, Rendered, RunningSum, TokenCounter
from iha.evaluate.ruler.materials import Library, Reading
from iha.evaluate.ruler.settings import QUESTIONS


def reading_draft(reading: Reading, library: Library, rng: Random, counter: TokenCounter) -> Draft:
    order: list[int] = []  # documents in the order in which a longer sample takes them
    seed = rng.random()
    texts = RunningSum(counter, _documents(reading, library, rng, order))
    headings = counter.running("documents", lambda: (f"\n\nDocument {i}:" for i in count(1)))

    def weight(n: int) -> int:
        return texts.total(n) + headings.total(n)

    def render(n: int) -> Rendered:
        weight(n)  # the order is drawn as far as it is counted
        chosen = order[:n]
        Random(f"{seed}/{n}").shuffle(chosen)
        context = "\n\n".join(f"Document {i}:\n{library.documents[d]}" for i, d in enumerate(chosen, 1))
        prompt = QUESTIONS.template.replace("{context}", context).replace("{query}", reading.question)
        places = [chosen.index(document) for document in reading.gold]
        return Rendered(prompt, QUESTIONS.prefix, {"documents": n, "gold_documents": [place + 1 for place in places]})

    return Draft(reading.answers, render, weight, minimum=len(reading.gold))


def _documents(reading: Reading, library: Library, rng: Random, order: list[int]) -> Iterator[str]:
    """Gold documents, then related ones, then random ones; then all of them again, without end."""
    own = reading.gold + rng.sample(reading.related, len(reading.related))
    others = list(set(range(len(library.documents))) - set(own))
    for document in cycle(own + rng.sample(others, len(others))):
        order.append(document)
        yield f"\n{library.documents[document]}"
