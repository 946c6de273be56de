"""What the tasks built on lm-eval's task files have in common; each benchmark adds how an answer is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iha.evaluate import harness
from iha.evaluate.protocol import Decoding, Question, Source, Verdict
from iha.evaluate.scoring import metric

GREEDY = Decoding()
SAMPLED = Decoding(samples=16, temperature=0.6)  # the paper's, after supervised fine-tuning


@dataclass(frozen=True)
class Benchmark:
    """A task file of `tasks/` and how its answers are decoded and scored. Subclasses implement `judge`."""

    name: str
    metrics: tuple[str, ...]
    decoding: Decoding
    task_file: str  # lm-eval's name of it
    files: Mapping[str, str] = field(default_factory=dict)  # split: file below --data
    runs_code: bool = False

    def check(self) -> None:
        """Only lm-eval is needed, and `questions` checks for it."""

    def questions(self, source: Source) -> list[Question]:
        files = None if source.data is None else {split: source.data / file for split, file in self.files.items()}
        return harness.questions(self.task_file, source, data_files=files)

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        raise NotImplementedError

    def score(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        return {name: metric(name, verdicts) for name in self.metrics}
