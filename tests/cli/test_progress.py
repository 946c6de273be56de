import io

import pytest

from iha.cli import progress
from iha.cli.progress import bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_bars_that_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "150")
    file = Terminal()
    with bars(file) as shown, shown.task("training", total=4, done=1) as outer:
        with shown.task("step", total=2) as inner:
            inner.advance(note="loss 1.25")
        outer.advance(2)
        live = shown._live
        assert live is not None
        live.refresh()
        (task,) = live.tasks
        assert (task.description, task.completed, task.total) == ("training", 3, 4)
    assert shown._live is None
    assert "training" in file.getvalue()


def test_it_works_without_with_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = bars(Terminal())
    for _ in range(2):
        with pytest.raises(ValueError, match="broke"), shown.task("work"):
            raise ValueError("broke")
        assert shown._live is None


def test_a_log_gets_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    with bars(file).task("training", total=10) as task:
        for step in range(10):
            now[0] = 20.0 * step
            task.advance(1, note=f"loss {step}")
    assert file.getvalue() == "training: 4/10 loss 3\ntraining: 7/10 loss 6\ntraining: 10/10 loss 9\n"


def test_quick_work_leaves_no_trace_in_a_log() -> None:
    file = io.StringIO()
    with bars(file).task("quick") as task:
        task.advance()
    assert file.getvalue() == ""
