"""MBPP and HumanEval: programs, judged by running them against the benchmark's tests in the jail."""

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iha.evaluate import answers
from iha.evaluate.benchmark import GREEDY, SAMPLED, Benchmark
from iha.evaluate.jail import Limits, Program, check_jail, run_programs
from iha.evaluate.protocol import Question, Verdict


@dataclass(frozen=True)
class ProgramBenchmark(Benchmark):
    runs_code: bool = True
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        check_jail()

    def program(self, doc: Mapping[str, Any], text: str) -> Program:
        raise NotImplementedError

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        programs = [
            [self.program(question.meta["doc"], text) for text in texts]
            for question, texts in zip(questions, samples, strict=True)
        ]
        different = list(dict.fromkeys(program for row in programs for program in row))  # samples repeat each other
        outcomes = dict(zip(different, run_programs(different, self.limits), strict=True))
        return [
            [_verdict(program, outcomes[program].status, outcomes[program].detail) for program in row]
            for row in programs
        ]


def _verdict(program: Program, status: str, detail: str) -> Verdict:
    return Verdict(float(status == "passed"), program.code, {"status": status, "detail": detail})


class HumanEval(ProgramBenchmark):
    def program(self, doc: Mapping[str, Any], text: str) -> Program:
        """The prompt with its continuation. Its helper functions belong to the tests: a program cannot replace them.

        Chat models write a whole function in a fenced block instead, which then replaces the prompt's unfinished one.
        """
        entry_point, prompt = doc["entry_point"], doc["prompt"]
        fenced = answers.program(text)
        if fenced != text and re.search(rf"^\s*(async\s+)?def\s+{entry_point}\b", fenced, re.MULTILINE):
            code = f"{prompt}\n\n{fenced}"
        else:
            code = prompt + text
        return Program(code, (doc["test"], f"check({entry_point})"), (entry_point,), setup=prompt)


class MBPP(ProgramBenchmark):
    def program(self, doc: Mapping[str, Any], text: str) -> Program:
        """The tests see what the reference solution defines and imports, under the same names, and no other name."""
        tests = [doc["test_setup_code"]] if doc.get("test_setup_code") else []
        tests += doc["test_list"]
        used = {node.id for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # '\d' without an r before it, in many of the dataset's own solutions
            reference = ast.parse(doc["code"]).body
        imports = [ast.unparse(node) for node in reference if isinstance(node, ast.Import | ast.ImportFrom)]
        names = tuple(name for node in reference for name in _defined(node) if name in used)
        setup = "\n".join([*imports, *doc.get("test_imports", [])])
        code = answers.program(text.partition("[DONE]")[0])
        return Program(code, tuple(tests), tuple(dict.fromkeys(names)), setup)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


_MBPP = {"prompt": "mbpp/mbpp.jsonl", "test": "mbpp/mbpp.jsonl"}

TASKS = [
    MBPP("mbpp", ("P@1",), GREEDY, "iha_mbpp", _MBPP),
    HumanEval("humaneval", ("P@1",), GREEDY, "iha_humaneval", {"test": "humaneval/HumanEval.jsonl.gz"}),
    MBPP("mbpp_sft", ("P@1", "P@10"), SAMPLED, "iha_mbpp_sft", {"test": "mbpp/mbpp.jsonl"}),
]
