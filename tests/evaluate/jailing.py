"""Whether programs can be jailed here, and one that is."""

import pytest

from iha.evaluate.jail import JailUnavailableError, Limits, Outcome, Program, check_jail, run_programs

try:
    check_jail()
    UNAVAILABLE = ""
except JailUnavailableError as error:
    UNAVAILABLE = str(error)

jailed = pytest.mark.skipif(bool(UNAVAILABLE), reason=UNAVAILABLE)

TEST = ("assert f(2) == 4", "assert f(-3) == 9")
RIGHT = "def f(x):\n    return x * x\n"


def outcome(code: str, tests: tuple[str, ...] = TEST, limits: Limits | None = None, setup: str = "") -> Outcome:
    return run_programs([Program(code, tests, ("f",), setup)], limits)[0]
