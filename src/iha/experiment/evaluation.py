"""Trained models of the scale model answer questions: RULER's needles, held-out puzzles, and a few answers to read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iha.evaluate.engine import HuggingFaceEngine, load
from iha.evaluate.protocol import Source, Task
from iha.evaluate.results import read_answered
from iha.evaluate.ruler.tasks import RulerTask
from iha.evaluate.run import evaluate
from iha.experiment.questions import PuzzleTask
from iha.experiment.variants import LABELS
from iha.records import Progress, Record, output_directory, silent

KIND = "scale-model-evaluation"
# RULER's tasks that need no essays or documents: one needle in noise, and one among other needles.
RULER = ("niah_single_1", "niah_multikey_2")
# As in the paper: retrieval after the adaptation to a longer context, solutions after fine-tuning. Without the puzzles
# called needles: they have up to 2400 tokens, more than the quick models take, and RULER asks the same.
PUZZLES = {"adapt": ("pairs", "hops"), "tune": ("arithmetic",)}
SHOWN = 3  # answers per task to read
PROMPT_TAIL = 400  # characters of a prompt that are kept beside them


@dataclass(frozen=True)
class Scope:
    """How much is asked."""

    lengths: tuple[int, ...] = (512, 1024)  # of RULER's samples, in tokens
    limit: int = 16  # questions per task
    seed: int = 0  # of the trained models and of the questions
    batch_size: int = 16


def evaluate_models(
    runs: Path, mechanisms: Sequence[str], out: Path, scope: Scope, *, command: str, progress: Progress = silent
) -> Record:
    """Every mechanism's exports of both phases, from the directories that `iha experiment scale-model` made.

    Writes `out/PHASE-MECHANISM/eval.json` and the answers beside it. Evaluations that are there already are kept.
    """
    exports = {
        (phase, mechanism): runs / f"{phase}-{mechanism}-s{scope.seed}" / "export"
        for phase in PUZZLES
        for mechanism in mechanisms
    }
    for mechanism in mechanisms:
        if mechanism not in LABELS:
            raise ValueError(f"mechanisms: {mechanism!r} is not one of {', '.join(LABELS)}")
    for directory in exports.values():
        if not directory.is_dir():
            raise ValueError(f"{directory} is missing: run `iha experiment scale-model --runs {runs}` first")
    config = {
        "mechanisms": list(mechanisms), "lengths": list(scope.lengths), "limit": scope.limit,
    }  # fmt: skip
    record = Record.new(KIND, command=command, config=config, seed=scope.seed)
    output_directory(out)
    source = Source(limit=scope.limit, seed=scope.seed, cache=output_directory(out / "questions"))
    results: dict[str, Any] = {}
    with progress.task("evaluation", total=len(exports)) as bar:
        for (phase, mechanism), directory in exports.items():
            folder = out / f"{phase}-{mechanism}"
            model, tokenizer = load(str(directory), "float32")
            engine = HuggingFaceEngine(model, tokenizer, batch_size=scope.batch_size)
            tasks = tasks_of(phase, scope.lengths)
            evaluated = evaluate(
                engine, tasks, folder, model=LABELS[mechanism], source=source, command=command, progress=progress
            )
            results.setdefault(phase, {})[mechanism] = {
                "label": LABELS[mechanism],
                "tasks": {
                    task.name: {key: evaluated.results[task.name][key] for key in ("metrics", "questions")}
                    for task in tasks
                },
                "answers": {task.name: _read(folder, task) for task in tasks},
            }
            bar.advance(1, note=f"{phase} {mechanism}")
    return record.finished(results)


def tasks_of(phase: str, lengths: Sequence[int]) -> list[Task]:
    ruler: list[Task] = [RulerTask(name, length) for length in lengths for name in RULER] if phase == "adapt" else []
    return [*ruler, *(PuzzleTask(name) for name in PUZZLES[phase])]


def _read(folder: Path, task: Task) -> list[dict[str, Any]]:
    """The first questions as the model saw them, at least their ends, with what it wrote."""
    return [
        {
            "prompt": (answered.question.prompt + answered.question.prefix)[-PROMPT_TAIL:],
            "reference": answered.question.reference, "text": answered.samples[0],
            "score": answered.verdicts[0].score,
        }
        for answered in read_answered(folder / f"{task.name}.jsonl.gz")[:SHOWN]
    ]  # fmt: skip
