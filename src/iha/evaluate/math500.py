"""MATH-500: competition problems, answers compared by math-verify (so \\frac12 is 0.5)."""

import contextlib
import importlib.util
import json
import os
import queue
import select
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from iha.evaluate.answers import after_thought
from iha.evaluate.benchmark import GREEDY, SAMPLED, Benchmark
from iha.evaluate.protocol import Question, Verdict

SECONDS = 120  # seconds per comparison, in case its own limit on CPU time does not end it
START_SECONDS = 300  # seconds to import sympy, even on a very busy machine


class MathVerify:
    """A process that runs math-verify. It is replaced when a comparison does not end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: str) -> dict[str, Any]:
        """The answer of math_worker.py, or {"error": ...}."""
        process = self._running()
        try:
            assert process.stdin
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._line(SECONDS)
        except BrokenPipeError:
            line = ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.close()
        return {"error": f"math-verify did not end within {SECONDS} s, or ran out of memory"}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, str(Path(__file__).with_name("math_worker.py"))]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self._line(START_SECONDS) != "ready\n":
                self.close()
                raise ValueError(f"math-verify does not start: {' '.join(command)}")
        return self._process

    def _line(self, seconds: float) -> str:
        """The next line; empty on timeout. An answer is written in one call, so a line always arrives whole."""
        assert self._process
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else ""


class MATH500(Benchmark):
    def check(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise ValueError(f"{self.name} is judged by math-verify: pip install 'iha[eval]'")

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        if len(questions) != len(samples):
            raise ValueError(f"{len(questions)} questions, but the samples of {len(samples)}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(_judge, questions, samples))


# Starting one takes seconds, and lm-eval asks question by question. They end with this process, which is their input.
_idle: queue.SimpleQueue[MathVerify] = queue.SimpleQueue()


def _judge(question: Question, texts: Sequence[str]) -> list[Verdict]:
    try:
        math_verify = _idle.get_nowait()
    except queue.Empty:
        math_verify = MathVerify()
    try:
        return judge(math_verify, question.reference, texts)
    finally:
        _idle.put(math_verify)


def judge(math_verify: MathVerify, gold: str, texts: Sequence[str]) -> list[Verdict]:
    """Judge one question's samples. Answers that math-verify considers equal vote together, under the first of them."""
    verdicts: list[Verdict] = []
    ballot: list[str] = []  # the different answers so far
    for text in texts:
        found = math_verify.ask(text=after_thought(text), gold=gold)
        answer = found.get("answer")
        detail = {"error": found["error"]} if "error" in found else {}
        if answer is not None:
            same = (seen for seen in ballot if seen == answer or _same(math_verify, seen, answer))
            vote = next(same, None)
            if vote is None:
                ballot.append(vote := answer)
            detail["vote"] = vote
        verdicts.append(Verdict(float(found.get("right", False)), answer, detail))
    return verdicts


def _same(math_verify: MathVerify, first: str, second: str) -> bool:
    return bool(math_verify.ask(first=first, second=second).get("same", False))


_FILES = {"test": "math500/test.jsonl"}

TASKS = [
    MATH500("math500", ("EM",), GREEDY, "iha_math500", _FILES),
    MATH500("math500_sft", ("P@1", "Maj@16"), SAMPLED, "iha_math500_sft", _FILES),
]
