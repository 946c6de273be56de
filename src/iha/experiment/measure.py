"""What a finished run of the scale model can do, measured after the fact from its export.

Puzzles by kind and size within the window; retrieval at lengths up to eight times the window, before and after
adaptation; word problems with sixteen samples each, before and after fine-tuning.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iha.evaluate.benchmark import SAMPLED
from iha.evaluate.engine import HuggingFaceEngine
from iha.evaluate.gsm8k import GSM8K
from iha.evaluate.protocol import Question, Source
from iha.evaluate.results import judged, summary
from iha.evaluate.ruler.settings import NEEDLE_TASKS
from iha.experiment import haystack
from iha.experiment.finished import for_each_finished
from iha.experiment.probe import Asked, accuracies, ask, questions
from iha.experiment.questions import PuzzleTask
from iha.models.generation import load
from iha.records import Progress, Record, silent
from iha.train.recipe import Tokenizer
from iha.train.tokenise import TextTokenizer, load_tokenizer

KIND = "scale-model-measurement"
DIRECTORY = "measured"  # below the runs' records
BATCH = 256  # texts generated together
RETRIEVAL_PHASES, PROBLEM_PHASES = ("pretrain", "adapt"), ("adapt", "tune")


@dataclass(frozen=True)
class Settings:
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # of the retrieval tasks, in tokens
    tasks: tuple[str, ...] = (*haystack.TASKS, *haystack.OWN)
    samples: int = 32  # of each task and length
    puzzles: int = 128  # of each kind
    problems: int = 200
    seed: int = 1  # 0 is that of the probes during training
    data: str | None = None  # a directory with RULER's essays, for the tasks that need them

    def __post_init__(self) -> None:
        for name in ("samples", "puzzles", "problems"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.lengths or min(self.lengths) < 64:
            raise ValueError(f"lengths must be at least 64 tokens, got {self.lengths}")
        for task in self.tasks:
            if task not in haystack.TASKS and task not in NEEDLE_TASKS:
                raise ValueError(f"tasks: {task!r} is not one of {', '.join((*haystack.TASKS, *NEEDLE_TASKS))}")


class WordProblems(GSM8K):
    """Held-out problems of the kind that fine-tuning trains on, judged as GSM8K."""

    def questions(self, source: Source) -> list[Question]:
        problems = PuzzleTask("arithmetic").questions(source)
        return [replace(problem, reference=f"#### {problem.reference}") for problem in problems]


WORD_PROBLEMS = WordProblems("word_problems", ("P@1", "Maj@16"), SAMPLED, "")


def measure_all(
    records: Path,
    runs: Path,
    settings: Settings,
    *,
    command: str,
    names: Sequence[str] = (),
    progress: Progress = silent,
) -> list[Record]:
    """Measure the runs named, or all whose export is there, without a sweep's. Those measured before are skipped."""
    return for_each_finished(
        records, runs, lambda run, made: measure_run(run, made / "export", settings, command, progress),
        directory=DIRECTORY, kind=KIND, title="measuring runs", names=names, progress=progress,
    )  # fmt: skip


def measure_run(run: Record, export: Path, settings: Settings, command: str, progress: Progress = silent) -> Record:
    facts = {key: value for key, value in run.config.items() if key != "recipe"}
    window = run.config["recipe"]["data"]["context"]
    record = Record.new(
        KIND, command=command, config={**facts, "window": window, "settings": asdict(settings)}, seed=settings.seed
    )
    model, tokenizer = load(str(export))
    text_tokenizer = load_tokenizer(Tokenizer("file", path=str(export / "tokenizer.json")))
    results: dict[str, Any] = {}
    with progress.task(f"puzzles of {run.config['name']}") as bar:
        results["puzzles"] = accuracies(model, questions(text_tokenizer, window, settings.puzzles, settings.seed))
        bar.advance(1)
    if run.config["phase"] in RETRIEVAL_PHASES:
        results |= retrieval(model, tokenizer, text_tokenizer, settings, progress)
    if run.config["phase"] in PROBLEM_PHASES:
        results["word_problems"] = word_problems(model, tokenizer, settings, progress)
    return record.finished(results)


def retrieval(
    model: Any, tokenizer: Any, text_tokenizer: TextTokenizer, settings: Settings, progress: Progress = silent
) -> dict[str, Any]:
    """{"retrieval": {task: {length: accuracy}}, "left_out": {"task at length": why}}."""
    data = None if settings.data is None else Path(settings.data)
    found: dict[str, dict[str, float]] = {}
    left_out = {}
    with progress.task("retrieval by length", total=len(settings.tasks) * len(settings.lengths)) as bar:
        for task in settings.tasks:
            found[task] = {}
            for length in settings.lengths:
                try:
                    puzzles = haystack.samples(task, length, settings.samples, settings.seed, tokenizer, data)
                except ValueError as error:
                    left_out[f"{task} at {length}"] = str(error)
                else:
                    asked: list[Asked] = [ask(text_tokenizer, puzzle, task) for puzzle in puzzles]
                    found[task][str(length)] = accuracies(model, asked)[task]
                bar.advance(1, note=f"{task} at {length}")
    return {"retrieval": found, "left_out": left_out}


def word_problems(model: Any, tokenizer: Any, settings: Settings, progress: Progress = silent) -> dict[str, Any]:
    """P@1 and Maj@16 in percent, over all problems and by number of steps."""
    task = WORD_PROBLEMS
    engine = HuggingFaceEngine(model, tokenizer, batch_size=BATCH, max_length=2**20)
    problems = task.questions(Source(limit=settings.problems, seed=settings.seed))
    samples: list[list[str]] = [[] for _ in problems]
    with progress.task("word problems", total=len(problems)) as bar:
        for number, batch in enumerate(engine.batches(problems, task.decoding)):
            seed = f"{settings.seed}/{task.name}/{number}"
            for index, texts in zip(
                batch, engine.answer([problems[i] for i in batch], task.decoding, seed), strict=True
            ):
                samples[index] = texts
            bar.advance(len(batch))
    answered = judged(task, problems, samples)
    steps = sorted({int(problem.meta["steps"]) for problem in problems})
    by_steps = {
        str(count): summary(task, [a for a in answered if a.question.meta["steps"] == count])["metrics"]
        for count in steps
    }
    first = {"question": problems[0].prompt, "reference": problems[0].reference, "sample": samples[0][0]}
    return {**summary(task, answered), "by_steps": by_steps, "decoding": asdict(task.decoding), "example": first}
