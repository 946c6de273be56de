"""The loop behind `make fuzz`: new examples until time is up, a failure reported once, what was tried counted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZERS = """
import hypothesis, pytest
from hypothesis import strategies as st
hypothesis.settings.register_profile("fuzz", deadline=None, derandomize=False, database=None, print_blob=True)
hypothesis.settings.load_profile("fuzz")
SEEN = open("seen.txt", "a")

@hypothesis.settings(max_examples=20)
@hypothesis.given(st.integers(0, 10**9))
def test_holds(number):
    print(number, file=SEEN, flush=True)

@hypothesis.given(st.integers())
def test_breaks(number):
    assert number < 1000

def test_of_another_kind():
    raise AssertionError("not a fuzzer, so not run")
"""


def _fuzz(directory: Path, minutes: str) -> subprocess.CompletedProcess:
    (directory / "test_these.py").write_text(FUZZERS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "fuzzing", "-p", "no:xdist", "--fuzz-minutes", minutes]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


def test_it_goes_on_with_new_examples_and_counts_them(tmp_path: Path) -> None:
    result = _fuzz(tmp_path, "0.05")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "reproduce_failure" in result.stdout
    assert "not a fuzzer" not in result.stdout
    counts = {name: int(n) for n, name in re.findall(r"^ +(\d+) .*::(\w+)", result.stdout, re.MULTILINE)}
    seen = (tmp_path / "seen.txt").read_text().split()
    assert counts.keys() == {"test_holds", "test_breaks"}
    assert counts["test_holds"] == len(seen) > 40, "one pass alone is 20 examples"
    assert len(set(seen)) > len(seen) // 2, "the passes repeat each other"
    assert re.search(r"test_breaks  FAILED$", result.stdout, re.MULTILINE)
    assert len(re.findall(r"^ +\d+ +1 .*test_breaks", result.stdout, re.MULTILINE)) == 1, "left out once it failed"


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_no_time_is_refused(tmp_path: Path, minutes: str) -> None:
    result = _fuzz(tmp_path, minutes)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "must be above 0" in result.stderr
