"""Held-out puzzles as a task of the evaluation: the model writes its answer, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

from iha.evaluate.protocol import Decoding, Question, Source, Verdict
from iha.train.puzzles import PUZZLES, generate

DEFAULT_QUESTIONS = 100
MARK = "####"  # before the answer of a puzzle whose solution the model writes too


@dataclass(frozen=True)
class PuzzleTask:
    """Puzzles of one kind from the test split. The prompt ends with the first question."""

    puzzle: str  # a key of PUZZLES

    metrics = ("EM",)
    decoding = Decoding()
    runs_code = False

    def __post_init__(self) -> None:
        if self.puzzle not in PUZZLES:
            raise ValueError(f"no puzzle is called {self.puzzle!r}; there are {', '.join(PUZZLES)}")

    @property
    def name(self) -> str:
        return f"puzzle_{self.puzzle}"

    @property
    def solved(self) -> bool:
        """Whether the model writes a solution, of which the answer is only the end."""
        return self.puzzle == "arithmetic"

    def check(self) -> None:
        """Nothing is needed to judge."""

    def questions(self, source: Source) -> list[Question]:
        return [self._question(source.seed, index) for index in range(source.limit or DEFAULT_QUESTIONS)]

    def _question(self, seed: int, index: int) -> Question:
        puzzle = generate(self.puzzle, "test", seed, index)
        asked = 1 if self.solved else next(i for i, piece in enumerate(puzzle.pieces) if piece.is_answer)
        prompt = "".join(piece.text for piece in puzzle.pieces[:asked])
        # A solution ends with its document; what follows a short answer on its line is not read.
        tokens, stop = (160, ()) if self.solved else (12, ("\n",))
        return Question(str(index), prompt, puzzle.answers[0], tokens, stop, meta=dict(puzzle.facts))

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        return [
            [self._verdict(text, question.reference) for text in texts]
            for question, texts in zip(questions, samples, strict=True)
        ]

    def _verdict(self, text: str, reference: str) -> Verdict:
        _, mark, rest = text.partition(MARK) if self.solved else ("", MARK, text)
        words = rest.split()  # an answer is one word; after it a list goes on
        answer = words[0] if mark and words else None
        return Verdict(float(answer == reference), answer)

    def score(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        (verdict,) = verdicts
        return {"EM": verdict.score}
