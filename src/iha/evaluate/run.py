"""Evaluate a model: answers are written as soon as they exist, so that an interrupted evaluation can resume."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from iha.evaluate.engine import Engine
from iha.evaluate.protocol import Question, Source, Task
from iha.evaluate.results import (
    KIND,
    RECORD,
    Partial,
    judged,
    read_answered,
    read_evaluation,
    summary,
    write_answered,
)
from iha.records import Progress, Record, locked, output_directory, remove_leftovers, silent, write_record


def evaluate(
    engine: Engine,
    tasks: Sequence[Task],
    out: Path,
    *,
    model: str,  # its name in tables
    source: Source,
    command: str,
    allow_code: bool = False,
    progress: Progress = silent,
) -> Record:
    """Metrics of every task, in `out/eval.json`. Tasks already in that file are not run again."""
    source = replace(source, tokenizer=engine.tokenizer, chat=engine.chat)
    _check(tasks, source, allow_code)
    config = {
        "model": model,
        "engine": engine.identity(),
        "source": {"data": source.data and source.data.name, "limit": source.limit, "seed": source.seed},
    }
    out = output_directory(out)
    with locked(out):
        remove_leftovers(out)
        record = _begun(out, command, config, source.seed)
        for task in tasks:
            if task.name not in record.results:
                record = _evaluate_task(engine, task, out, source, record, progress)
    return record


def rescore(out: Path, tasks: Mapping[str, Task], *, allow_code: bool = False, progress: Progress = silent) -> Record:
    """Judge the stored answers again, without the model, e.g. after a change of the scoring."""
    _allow(list(tasks.values()), allow_code)
    with locked(out):
        record = read_evaluation(out)
        unknown = set(record.results) - set(tasks)
        if unknown:
            raise ValueError(f"{out} has results of tasks that are not known here: {', '.join(sorted(unknown))}")
        with progress.task("scoring", total=len(record.results)) as bar:
            for name in list(record.results):
                task = tasks[name]
                task.check()
                kept = read_answered(out / f"{name}.jsonl.gz")
                answered = judged(task, [a.question for a in kept], [a.samples for a in kept])
                write_answered(out / f"{name}.jsonl.gz", answered)
                record.results[name] |= summary(task, answered)
                bar.advance(1, note=name)
        write_record(out / RECORD, record)
    return record


def _check(tasks: Sequence[Task], source: Source, allow_code: bool) -> None:
    """Detect every foreseeable error before any work: generate the first question of every task."""
    if not tasks:
        raise ValueError("no tasks were chosen")
    names = [task.name for task in tasks]
    if len(set(names)) != len(names):
        raise ValueError(f"a task was chosen twice: {', '.join(names)}")
    _allow(tasks, allow_code)
    problems = []
    for task in tasks:
        try:
            task.check()
            task.questions(replace(source, limit=1, cache=None))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))


def _allow(tasks: Sequence[Task], allow_code: bool) -> None:
    dangerous = [task.name for task in tasks if task.runs_code]
    if dangerous and not allow_code:
        raise ValueError(
            f"{', '.join(dangerous)} would run programs that the model wrote: allow it with --allow-code, or leave "
            "them out"
        )


def _begun(out: Path, command: str, config: dict[str, Any], seed: int) -> Record:
    """The existing record, if it has the same model and questions; otherwise a new one."""
    if not (out / RECORD).exists():
        return replace(Record.new(KIND, command=command, config=config, seed=seed), results={})
    record = read_evaluation(out)
    if record.config != config:
        there = {key: record.config.get(key) for key in config if record.config.get(key) != config[key]}
        here = {key: config[key] for key in there}
        raise ValueError(f"{out} holds another evaluation, with {there} where this one has {here}")
    return record


def _evaluate_task(engine: Engine, task: Task, out: Path, source: Source, record: Record, progress: Progress) -> Record:
    began = time.monotonic()
    with progress.task(f"{task.name}: questions") as bar:
        questions = task.questions(source)
        bar.advance(1)
    if len({question.id for question in questions}) != len(questions) or not questions:
        raise ValueError(f"{task.name} has no questions, or two of the same id")
    batches = engine.batches(questions, task.decoding)
    fingerprint = _fingerprint(task, questions, record.config, source.seed)
    partial = Partial(out / f"{task.name}.partial", fingerprint)
    samples: list[list[str]] = [[] for _ in questions]
    try:
        with progress.task(task.name, total=len(questions), done=sum(len(batches[b]) for b in partial.answers)) as bar:
            for number, batch in enumerate(batches):
                if number not in partial.answers:
                    seed = f"{source.seed}/{task.name}/{number}"
                    partial.add(number, engine.answer([questions[i] for i in batch], task.decoding, seed))
                    bar.advance(len(batch))
                for i, texts in zip(batch, partial.answers[number], strict=True):
                    samples[i] = texts
    finally:
        partial.close()
    with progress.task(f"{task.name}: judging") as bar:
        answered = judged(task, questions, samples)
        bar.advance(1)
    write_answered(out / f"{task.name}.jsonl.gz", answered)
    results = {
        **summary(task, answered),
        "clipped": engine.clipped(questions),  # questions whose answers are truncated by the model's context
        "decoding": asdict(task.decoding),
        "fingerprint": fingerprint,
    }
    seconds = record.seconds + time.monotonic() - began
    record = record.finished(record.results | {task.name: results}, seconds)
    write_record(out / RECORD, record)
    partial.path.unlink()
    return record


def _fingerprint(task: Task, questions: Sequence[Question], config: dict[str, Any], seed: int) -> str:
    """A hash of everything that the samples depend on."""
    digest = hashlib.sha256(json.dumps([task.name, asdict(task.decoding), config, seed], sort_keys=True).encode())
    for question in questions:
        digest.update(json.dumps(question.as_json(), sort_keys=True).encode())
    return digest.hexdigest()[:20]
