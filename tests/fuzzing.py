"""A pytest plugin behind `make fuzz MINUTES=n`: every hypothesis test, again and again, with new examples each time.

The fuzzers take turns, one pass of their `max_examples` each. A fuzzer that fails is reported, with the blob that
repeats the example, and left out of the rounds that follow. At the end: what was tried, fuzzer by fuzzer.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest


@dataclass
class Tried:
    """What one fuzzer did so far."""

    examples: int = 0
    passes: int = 0
    seconds: float = 0.0
    failed: bool = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-minutes", type=float, default=None, help="run the hypothesis tests for so long")


class Fuzzing:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, minutes: float) -> None:
        if not minutes > 0:
            raise pytest.UsageError(f"--fuzz-minutes must be above 0, got {minutes}")
        self.minutes = minutes
        self.ends = float("inf")  # set when the loop starts
        self.current = ""
        self.tried: dict[str, Tried] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.get_closest_marker("hypothesis")]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.ends = time.monotonic() + 60 * self.minutes
        self.tried = {item.nodeid: Tried() for item in session.items}
        for item in session.items:
            self._count_examples(item)
        left = list(session.items)
        while left and time.monotonic() < self.ends:
            for item in list(left):
                if time.monotonic() >= self.ends:
                    break
                self._one_pass(item)
                if self.tried[item.nodeid].failed:
                    left.remove(item)
        return True

    def _one_pass(self, item: pytest.Item) -> None:
        from _pytest.runner import runtestprotocol

        tried, started = self.tried[item.nodeid], time.monotonic()
        reports = runtestprotocol(item, nextitem=None, log=False)  # None: every fixture is torn down
        tried.passes += 1
        tried.seconds += time.monotonic() - started
        tried.failed = any(report.failed for report in reports)
        for report in reports:
            if report.failed:  # the dots of thousands of passes say nothing
                item.ihook.pytest_runtest_logreport(report=report)

    def _count_examples(self, item: Any) -> None:
        """Wrap the body of the test: `hypothesis.inner_test` is documented for that."""
        handle = getattr(item.obj, "hypothesis", None)
        if handle is None or hasattr(handle.inner_test, "counted"):
            return  # a state machine, or another parameter of a test that is already wrapped
        handle.inner_test = self._counting(handle.inner_test)

    def _counting(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if time.monotonic() >= self.ends:
                return None  # time is up: let hypothesis finish its pass without work
            self.tried[self.current].examples += 1
            return inner(*args, **kwargs)

        counted.counted = True  # type: ignore[attr-defined]
        return counted

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.current = item.nodeid

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section(f"what was tried in {self.minutes:g} minutes")
        write(f"{'examples':>10}  {'passes':>7}  {'seconds':>8}  fuzzer")
        for nodeid, tried in self.tried.items():
            verdict = "  FAILED" if tried.failed else ""
            write(f"{tried.examples:>10}  {tried.passes:>7}  {tried.seconds:>8.1f}  {nodeid}{verdict}")
        total = sum(tried.examples for tried in self.tried.values())
        failed = sum(tried.failed for tried in self.tried.values())
        write(f"{total:>10}  examples, {len(self.tried)} fuzzers, {failed} failed")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.tried:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        elif any(tried.failed for tried in self.tried.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            session.exitstatus = pytest.ExitCode.OK


def pytest_configure(config: pytest.Config) -> None:
    minutes = config.getoption("--fuzz-minutes")
    if minutes is not None:
        config.pluginmanager.register(Fuzzing(minutes), "fuzzing-loop")
