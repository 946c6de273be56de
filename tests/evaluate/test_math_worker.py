"""The worker's protocol: a line in, a line out, whatever the line; and its limit of CPU time."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("math_verify")

from iha.evaluate import math_worker
from iha.evaluate.math_worker import boxed, respond


def test_answers_and_comparisons():
    assert respond({"text": "It is \\boxed{\\frac12}.", "gold": "0.5"}) == {"answer": "\\frac{1}{2}", "right": True}
    assert respond({"text": "It is \\boxed{3}.", "gold": "4"}) == {"answer": "3", "right": False}
    assert respond({"text": "no answer", "gold": "4"}) == {"answer": None, "right": False}
    assert respond({"first": "2/4", "second": "\\frac{1}{2}"}) == {"same": True}
    assert respond({"first": "2", "second": "3"}) == {"same": False}
    assert boxed("x") == r"\boxed{x}"


@pytest.fixture(scope="module")
def worker():
    """As the parent starts it: as a file, with nothing of the project."""
    command = [sys.executable, "-I", math_worker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()
    assert process.returncode == 0  # it ends with its input


def ask(worker, line: str):
    worker.stdin.write(line + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def test_every_line_has_an_answer(worker):
    assert ask(worker, json.dumps({"text": "$7$", "gold": "7"})) == {"answer": "7", "right": True}
    for line in ("nonsense", "[]", "{}", '{"first": "1"}'):
        assert ask(worker, line).keys() == {"error"}, line
    assert ask(worker, json.dumps({"first": "1", "second": "1"})) == {"same": True}


LOOP = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("math_worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
honest = worker.respond

def respond(request):
    while request.get("text") == "loop":
        pass
    return honest(request)

worker.respond, worker.CPU_SECONDS = respond, 0.2
worker.main()
"""


def test_a_request_that_uses_up_its_cpu_time_is_refused_and_the_next_is_answered():
    command = [sys.executable, "-I", "-c", LOOP, math_worker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        assert ask(process, '{"text": "loop", "gold": "1"}') == {
            "error": "OutOfTimeError: not done after 0.2 s of CPU time"
        }
        assert ask(process, '{"first": "1", "second": "1"}') == {"same": True}
        process.stdin.close()
