"""Engines that need no model, and a task that needs no data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from iha.evaluate.protocol import Decoding, Question, Source, Verdict


class Oracle:
    """Knows the answers: its text is the reference."""

    chat = False

    def __init__(self, tokenizer: Any = None) -> None:
        self.tokenizer, self.calls = tokenizer, 0

    def identity(self) -> dict[str, Any]:
        return {"name": type(self).__name__}

    def batches(self, questions: Sequence[Question], decoding: Decoding) -> list[list[int]]:
        order = sorted(range(len(questions)), key=lambda i: -len(questions[i].prompt))
        return [order[i : i + 2] for i in range(0, len(order), 2)]

    def clipped(self, questions: Sequence[Question]) -> int:
        return 0

    def answer(self, questions: Sequence[Question], decoding: Decoding, seed: str) -> list[list[str]]:
        self.calls += 1
        return [[self.text(q, Random(f"{seed}/{q.id}/{s}")) for s in range(decoding.samples)] for q in questions]

    def text(self, question: Question, rng: Random) -> str:
        reference = question.reference
        return reference if isinstance(reference, str) else " ".join(reference)


class Chance(Oracle):
    """Words and numbers at random."""

    def text(self, question: Question, rng: Random) -> str:
        return " ".join(f"{rng.choice('aeiou')}{rng.randrange(10**4)}" for _ in range(20))


class KilledError(BaseException):
    pass


class Interrupted(Oracle):
    """Dies at its n-th call."""

    def __init__(self, dies_at: int, engine: Oracle) -> None:
        super().__init__(engine.tokenizer)
        self.dies_at, self.engine = dies_at, engine

    def identity(self) -> dict[str, Any]:
        return self.engine.identity()

    def answer(self, questions: Sequence[Question], decoding: Decoding, seed: str) -> list[list[str]]:
        if self.calls == self.dies_at:
            raise KilledError
        self.calls += 1
        return self.engine.answer(questions, decoding, seed)


@dataclass(frozen=True)
class Sums:
    """Additions; two samples each."""

    name: str = "sums"
    metrics: tuple[str, ...] = ("P@1", "any")
    decoding: Decoding = field(default_factory=lambda: Decoding(samples=2, temperature=0.6))
    runs_code: bool = False

    def check(self) -> None:
        pass

    def questions(self, source: Source) -> list[Question]:
        count = source.limit or 9
        return [Question(str(i), "+".join(["1"] * (i + 1)), str(i + 1), 3) for i in range(count)]

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        return [
            [Verdict(float(t == q.reference), t) for t in texts] for q, texts in zip(questions, samples, strict=True)
        ]

    def score(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        scores = [verdict.score for verdict in verdicts]
        return {"P@1": sum(scores) / len(scores), "any": max(scores)}
