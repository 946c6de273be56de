import importlib.util
import time
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("math_verify")

from published import DATA, needs_data, rows

from iha.evaluate import math500
from iha.evaluate.answers import last_boxed
from iha.evaluate.protocol import Question, Source

EM, SFT = math500.TASKS


def load_functions() -> ModuleType:
    """As lm-eval loads it: by its path."""
    path = Path(math500.__file__).parent / "tasks/functions.py"
    spec = importlib.util.spec_from_file_location("functions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def worker():
    worker = math500.MathVerify()
    yield worker
    worker.close()


CASES = [
    ("\\frac{1}{2}", "so the answer is $\\boxed{\\frac12}$", 1),
    ("\\frac{1}{2}", "The answer is 0.5", 1),
    ("\\frac{1}{2}", "Final Answer: The final answer is $\\frac{1}{3}$. I hope it is correct.", 0),
    ("[2,5)", "\\boxed{[2,5)}", 1),
    ("[2,5)", "\\boxed{[2,5]}", 0),
    ("2\\sqrt{3}", "\\boxed{\\sqrt{12}}", 1),
    ("(3, \\frac{\\pi}{2})", "\\boxed{(3,\\pi/2)}", 1),
    ("10", "$x = 10$", 1),
    ("10", "", 0),
    ("10", "I do not know", 0),
    ("x^2+2x+1", "\\boxed{(x+1)^2}", 1),
    ("5", "<think>\\boxed{5}</think> It is \\boxed{6}.", 0),
]


def test_judged_by_hand_and_by_math_verify_itself(worker):
    from math_verify import parse, verify

    for gold, text, right in CASES:
        (verdict,) = math500.judge(worker, gold, [text])
        assert verdict.score == right, (gold, text, verdict)
        assert verify(parse(f"\\boxed{{{gold}}}"), parse(text.rpartition("</think>")[2])) == bool(right)


def test_equal_answers_vote_together(worker):
    texts = ["\\boxed{3}", "\\boxed{\\frac{1}{2}}", "nothing", "The answer is $0.5$", "\\boxed{3}", "\\boxed{2/4}"]
    verdicts = math500.judge(worker, "0.5", texts)
    assert [verdict.detail.get("vote") for verdict in verdicts] == [
        "3",
        *["\\frac{1}{2}", None, "\\frac{1}{2}", "3", "\\frac{1}{2}"],
    ]
    assert [verdict.score for verdict in verdicts] == [0, 1, 0, 1, 0, 1]


HANG = """
import sys
print('ready', flush=True)
for line in sys.stdin:
    while 'hang' in line:
        pass
    print('{"right": true}', flush=True)
"""


def test_a_comparison_that_does_not_end_is_wrong_and_the_next_one_is_judged(monkeypatch):
    monkeypatch.setattr(math500, "SECONDS", 1)
    stuck = math500.MathVerify()
    monkeypatch.setattr(math500.Path, "with_name", lambda *_: "-c")
    popen = math500.subprocess.Popen
    monkeypatch.setattr(math500.subprocess, "Popen", lambda command, **options: popen([*command, HANG], **options))
    begin = time.monotonic()
    assert "did not end" in stuck.ask(text="hang", gold="1")["error"]
    assert time.monotonic() - begin < 60
    assert stuck.ask(text="1", gold="1") == {"right": True}
    stuck.close()


@pytest.mark.slow
def test_a_tower_of_powers_is_survived(worker):
    texts = ["$9^{9^{9^{9^9}}}$", "\\boxed{10^{10^{10}}!}", "\\boxed{4}"]
    assert [verdict.score for verdict in math500.judge(worker, "4", texts)] == [0, 0, 1]


def test_both_tasks_score_through_the_pool():
    question = Question("0", "", "4", 8)
    assert EM.score(EM.judge([question], [["\\boxed{4}"]])[0]) == {"EM": 1.0}
    samples = ["\\boxed{4}"] * 6 + ["\\boxed{5}"] * 5 + ["no"] * 5
    assert SFT.score(SFT.judge([question], [samples])[0]) == {"P@1": 6 / 16, "Maj@16": 1.0}
    assert EM.judge([], []) == []
    with pytest.raises(ValueError, match="1 questions"):
        EM.judge([question], [])


@needs_data
def test_prompts():
    pytest.importorskip("lm_eval")
    row = rows("math500/test.jsonl")[1]
    question = EM.questions(Source(data=DATA, limit=2))[1]
    assert question.prompt.endswith(f"Problem:\n{row['problem']}\n\nSolution:")
    assert question.prompt.count("Problem:") == 6
    assert question.prompt.count("I hope it is correct.") == 5
    assert question.reference == row["answer"]


def test_the_examples_in_the_prompt_are_right(worker):
    """Each solution's box and its last line say the same."""
    examples = load_functions().math_examples()
    assert len(examples) == 5
    for example in examples:
        text = example["answer"]
        final = text.rpartition("The final answer is $")[2].removesuffix("$. I hope it is correct.")
        assert last_boxed(text) == final
        assert math500.judge(worker, final, [text])[0].score == 1


def verify_themselves(chosen):
    questions = [Question(str(i), "", row["answer"], 8) for i, row in enumerate(chosen)]
    forms = ["\\boxed{%s}", "The answer is $%s$.", "Final Answer: The final answer is $%s$. I hope it is correct."]
    texts = [[*(form % row["answer"] for form in forms), row["solution"]] for row in chosen]
    for row, verdicts in zip(chosen, EM.judge(questions, texts), strict=True):
        assert [verdict.score for verdict in verdicts] == [1, 1, 1, 1], (row, verdicts)


@needs_data
def test_published_answers_verify_against_themselves():
    verify_themselves(rows("math500/test.jsonl")[::25])


@needs_data
@pytest.mark.slow
def test_all_published_answers_verify_against_themselves():
    verify_themselves(rows("math500/test.jsonl"))
