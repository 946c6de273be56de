"""Every example runs, is short and says what it is."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
SLOW = {"fsdp2_two_processes", "train_small"}  # two more processes, each importing torch; a whole training run
ARGUMENTS = {"train_small": ["--steps", "4"]}
KEEPS = {"train_small": ["out"]}  # a run directory


def _parameters() -> list:
    return [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem in SLOW else []) for p in EXAMPLES]


def test_there_are_five_to_eight():
    assert 5 <= len(EXAMPLES) <= 8


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_says_what_it_is(path):
    assert len(path.read_text().splitlines()) < 80
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", _parameters())
def test_it_runs(path, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(path), *ARGUMENTS.get(path.stem, [])]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout
    left = [left.name for left in tmp_path.iterdir()]
    assert left == KEEPS.get(path.stem, []), "it leaves files behind"
