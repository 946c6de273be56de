import json

import pytest
from jailing import jailed
from published import DATA, needs_data, rows

from iha.evaluate import programs
from iha.evaluate.jail import run_programs
from iha.evaluate.protocol import Question, Source

MBPP, HUMANEVAL, MBPP_SFT = programs.TASKS

PROMPT = '''import math


def poly(x):
    return x * x


def root(y: float):
    """ x with poly(x) = y """
'''
TEST = """METADATA = {}


def check(candidate):
    for y in (1, 4, 9):
        assert abs(poly(candidate(y)) - y) < 1e-9
"""
SOLUTION = "    return math.sqrt(y)\n"
TASK = {"prompt": PROMPT, "entry_point": "root", "canonical_solution": SOLUTION, "test": TEST}


def humaneval(text):
    question = Question("0", PROMPT, "", 8, meta={"doc": TASK})
    return HUMANEVAL.judge([question], [[text]])[0][0]


@jailed
def test_humaneval():
    assert humaneval(SOLUTION).score == 1
    assert humaneval("    return y / 2\n").detail["status"] == "wrong"
    assert humaneval("    return math.sqrt(y").detail["status"] == "error"
    assert (
        humaneval("    return y\n\n\ndef poly(x):\n    return x\n").score == 0
    )  # the prompt's helper is the tests' own
    assert humaneval("    return None\n\n\nimport sys; sys.exit(0)").detail["status"] == "exited"


@jailed
def test_humaneval_takes_a_whole_function_in_a_block():
    assert humaneval("Sure:\n```python\ndef root(y):\n    return math.sqrt(y)\n```\nThis works.").score == 1
    assert humaneval("```python\ndef other(y):\n    return 1\n```").score == 0


CODE = """import math
R = 2
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

def sum(pair):
    return pair.a + pair.b"""
TESTS = ["assert sum(pair) == 3", "assert sum(Pair(R, 2)) == math.floor(4.5)", "assert len([sum(pair)]) == 1"]
EXERCISE = {
    "text": "Write a function to sum.",
    "code": CODE,
    "test_setup_code": "pair = Pair(1, 2)",
    "test_list": TESTS,
}


def mbpp(*texts):
    question = Question("0", "", "", 8, meta={"doc": EXERCISE})
    return MBPP.judge([question], [list(texts)])[0]


@jailed
def test_mbpp():
    no_import = CODE.removeprefix("import math\n")
    fenced = f"```python\n{CODE}\n```"
    verdicts = mbpp(CODE, CODE + "\n[DONE]\nmore", no_import, fenced, CODE.replace("+", "-"), "", CODE)
    assert [verdict.score for verdict in verdicts] == [1, 1, 1, 1, 0, 0, 1]
    assert verdicts[5].detail["detail"] == "test 0: NameError: name 'Pair' is not defined"


def test_mbpp_hands_over_only_what_the_reference_defines():
    """sum is the exercise's own, len is Python's and stays so."""
    program = MBPP.program(EXERCISE, "def len(x):\n    return 1")
    assert program.names == ("R", "Pair", "sum")
    assert program.setup == "import math"
    assert program.tests == ("pair = Pair(1, 2)", *TESTS)


@jailed
def test_pass_at_k_of_sixteen_samples():
    question = Question("0", "", "", 8, meta={"doc": EXERCISE})
    samples = [CODE] * 4 + ["raise ValueError"] * 12
    assert MBPP_SFT.score(MBPP_SFT.judge([question], [samples])[0])["P@1"] == 0.25


def test_code_runs_only_where_it_is_allowed():
    assert all(task.runs_code for task in programs.TASKS)


@needs_data
def test_prompts():
    pytest.importorskip("lm_eval")
    all_rows = rows("mbpp/mbpp.jsonl")
    questions = MBPP.questions(Source(data=DATA))
    assert [question.meta["doc"]["task_id"] for question in questions] == list(range(11, 511))
    assert questions[0].prompt.count("[BEGIN]") == 6
    assert questions[0].prompt.count("[DONE]") == 5
    assert [row["text"] in questions[0].prompt for row in all_rows[:7]] == [False, True, True, True, True, True, False]
    assert questions[0].prompt.endswith("\n".join(all_rows[10]["test_list"]) + "\n[BEGIN]\n")
    questions = HUMANEVAL.questions(Source(data=DATA))
    assert [question.prompt for question in questions] == [
        row["prompt"] for row in rows("humaneval/HumanEval.jsonl.gz")
    ]


def assert_all_pass(task, chosen, field):
    found = [
        (row["task_id"], o)
        for row, o in zip(chosen, run_programs([task.program(r, r[field]) for r in chosen]), strict=True)
    ]
    assert [(task_id, outcome) for task_id, outcome in found if not outcome.passed] == []


@jailed
@needs_data
def test_some_reference_solutions_pass():
    assert_all_pass(HUMANEVAL, rows("humaneval/HumanEval.jsonl.gz")[2::10], "canonical_solution")
    special = {126, 367, 533, 596, 601, 927}  # a builtin's name, objects, types, imports
    assert_all_pass(MBPP, [row for row in rows("mbpp/mbpp.jsonl") if row["task_id"] in special], "code")


@jailed
@needs_data
@pytest.mark.slow
def test_all_reference_solutions_pass():
    assert_all_pass(HUMANEVAL, rows("humaneval/HumanEval.jsonl.gz"), "canonical_solution")
    assert_all_pass(MBPP, rows("mbpp/mbpp.jsonl"), "code")
    assert_all_pass(MBPP, json.loads((DATA / "mbpp/sanitized-mbpp.json").read_text()), "code")
