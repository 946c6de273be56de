"""Files of one model's evaluation, all in one directory.

`eval.json`        the record: what was run, and each task's metrics
`TASK.jsonl.gz`    one line per question: prompt, reference, every sample with its verdict, the question's metrics
`TASK.partial`     answers so far of an unfinished task, one line per batch; removed when the task is done
"""

import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iha.evaluate.protocol import Question, Task, Verdict
from iha.records import Record, read_record, write_bytes

KIND = "evaluation"
RECORD = "eval.json"


@dataclass(frozen=True)
class Answered:
    """One question with its samples, verdicts and metrics."""

    question: Question
    samples: list[str]
    verdicts: list[Verdict]
    scores: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        judged = [{"text": t, **asdict(v)} for t, v in zip(self.samples, self.verdicts, strict=True)]
        return {"question": self.question.as_json(), "samples": judged, "scores": self.scores}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> "Answered":
        samples = [sample["text"] for sample in line["samples"]]
        verdicts = [Verdict(s["score"], s["answer"], s["detail"]) for s in line["samples"]]
        return cls(Question.from_json(line["question"]), samples, verdicts, line["scores"])


def judged(task: Task, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[Answered]:
    verdicts = task.judge(questions, samples)
    return [
        Answered(question, list(texts), list(judgement), task.score(judgement))
        for question, texts, judgement in zip(questions, samples, verdicts, strict=True)
    ]


def summary(task: Task, answered: Sequence[Answered]) -> dict[str, Any]:
    """A task's part of the record: each metric over all questions in percent, and question by question.

    Models that got the same questions (ids and references, in this order) can be compared question by question. RULER's
    filler depends on the tokenizer, so prompts may differ.
    """
    asked = json.dumps([[a.question.id, a.question.reference] for a in answered], sort_keys=True)
    return {
        "metrics": {m: 100 * sum(a.scores[m] for a in answered) / len(answered) for m in task.metrics},
        "questions": len(answered),
        "asked": hashlib.sha256(asked.encode()).hexdigest()[:20],
        "scores": {m: [round(a.scores[m], 6) for a in answered] for m in task.metrics},
    }


def write_answered(path: Path, answered: Sequence[Answered]) -> None:
    """The same answers give the same bytes."""
    lines = (json.dumps(a.as_json(), ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n" for a in answered)
    write_bytes(path, gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))


def read_answered(path: Path) -> list[Answered]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return [Answered.from_json(json.loads(line)) for line in file]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no answers that can be read: {error}") from error


def read_evaluation(folder: Path) -> Record:
    path = folder / RECORD if folder.is_dir() else folder
    if not path.is_file():
        raise ValueError(f"{folder} has no {RECORD}: it is no evaluation")
    return read_record(path, KIND)


class Partial:
    """Answers of an unfinished task. A line is one batch; a line truncated by a kill is dropped."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.answers: dict[int, list[list[str]]] = {}  # by batch
        kept = 0
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                try:
                    entry = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path} is damaged: delete it to begin this task again ({error})") from error
                if entry["fingerprint"] != fingerprint:
                    raise ValueError(
                        f"{path} is of an evaluation with other questions or settings: finish that one, delete the "
                        "file, or choose another directory"
                    )
                self.answers[entry["batch"]] = entry["samples"]
                kept += len(line)
        self.fingerprint = fingerprint
        self.file = path.open("ab")
        self.file.truncate(kept)

    def add(self, batch: int, samples: list[list[str]]) -> None:
        self.answers[batch] = samples
        line = json.dumps({"fingerprint": self.fingerprint, "batch": batch, "samples": samples}, ensure_ascii=False)
        self.file.write(line.encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()
