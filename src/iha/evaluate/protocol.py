"""The types that tasks, engine, records and tables of an evaluation exchange.

A `Task` makes `Question`s, the engine answers each with `decoding.samples` texts, the task judges every text (one
`Verdict` each) and reduces one question's verdicts into its metrics. A metric of a task is the plain mean over its
questions, so that two models can be compared question by question. All of it is JSON and kept in the results.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Decoding:
    """How a task's texts are generated. Temperature 0 is greedy and allows one sample only."""

    samples: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all tokens

    def __post_init__(self) -> None:
        if self.samples < 1 or self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(f"samples must be at least 1, temperature and top_k not negative, top_p in (0, 1]: {self}")
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(f"greedy decoding gives {self.samples} times the same text: set a temperature")


@dataclass(frozen=True)
class Question:
    """One prompt and what is needed to judge an answer to it; JSON all through."""

    id: str  # unique within its task, the same for every model: models are compared by it
    prompt: str
    reference: Any  # the expected answer: a string, a list of strings, a program of tests, ...
    max_new_tokens: int
    stop: tuple[str, ...] = ()  # generation ends at the first of these, which is cut off
    prefix: str = ""  # how the answer begins; after the prompt, and after the chat template where one is used
    meta: dict[str, Any] = field(default_factory=dict)  # whatever helps an audit

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"question {self.id}: max_new_tokens must be at least 1, got {self.max_new_tokens}")

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"stop": list(self.stop)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Question":
        return cls(**values | {"stop": tuple(values["stop"])})


@dataclass(frozen=True)
class Verdict:
    """The judgement of one sample."""

    score: float  # 0 to 1
    answer: str | None = None  # what was taken from the text to be compared; None: nothing found
    detail: dict[str, Any] = field(default_factory=dict)  # e.g. another harness's score, how a program ended

    def __post_init__(self) -> None:
        if not 0 <= self.score <= 1:
            raise ValueError(f"a verdict's score must be in [0, 1], got {self.score}")


@dataclass(frozen=True)
class Source:
    """Where a task takes its questions from."""

    data: Path | None = None  # a directory laid out as in docs/evaluation.md; None: the Hugging Face Hub
    limit: int | None = None  # use only the first `limit` questions; None: all of them
    seed: int = 0  # of generated questions and of few-shot examples
    tokenizer: Any = None  # of the model under test, for tasks whose prompts have a length in tokens
    chat: bool = False  # prompts go through the tokenizer's chat template
    cache: Path | None = None  # where generated questions are kept; None: not kept

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if self.data is not None and not self.data.is_dir():
            raise ValueError(f"--data {self.data} is not a directory")


class Task(Protocol):
    """A benchmark under one protocol of decoding: GSM8K greedy and GSM8K with 16 samples are two tasks."""

    @property
    def name(self) -> str:
        """The task's name in results and on the command line, e.g. "gsm8k_sft": letters, digits, _ and -."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The keys of `score`, the headline one first."""

    @property
    def decoding(self) -> Decoding: ...

    @property
    def runs_code(self) -> bool:
        """Whether `judge` executes what the model wrote, which users must allow."""

    def check(self) -> None:
        """ValueError when it cannot judge here (a package or the jail is missing). Called before any work."""

    def questions(self, source: Source) -> list[Question]:
        """In a fixed order: a pure function of the source."""

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        """One verdict per sample; many questions at once, so that programs can run in parallel. No randomness."""

    def score(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """One question's metrics (0 to 1 each) from the verdicts on its samples, which come in a fixed order."""
