"""Metrics: complete lines, nothing from after the checkpoint, and the same values to every tracker."""

import json
import math
import sys
from types import SimpleNamespace

import pytest

from iha.train.metrics import FILE, Meter, Metrics, read_metrics
from iha.train.recipe import Data, Logging


def test_speed_is_since_the_last_reading(monkeypatch):
    clock = iter([100.0, 102.0, 107.0])
    monkeypatch.setattr("iha.train.metrics.time.monotonic", lambda: next(clock))
    meter = Meter(Data(context=32, batch=4), peak=16_000)
    assert meter.read(7, 4000) == {"tokens_per_second": 1 / 2 * 4 * 32, "mfu": 1 / 2 * 4000 / 16_000}  # one step
    assert meter.read(17, 6000) == {"tokens_per_second": 10 / 5 * 4 * 32, "mfu": 10 / 5 * 6000 / 16_000}


def opened(directory, resumed_at=0, **logging):
    return Metrics(directory, Logging(**logging), resumed_at=resumed_at, name="run", config={"seed": 1})


def test_what_is_written_is_read_and_what_is_not_finite_is_null(tmp_path):
    metrics = opened(tmp_path)
    metrics.write(1, {"loss": 2.5, "gradient_norm": math.inf})
    metrics.write(2, {"loss": math.nan})
    assert read_metrics(tmp_path / FILE) == [  # before it is closed: a kill loses no line
        {"step": 1, "loss": 2.5, "gradient_norm": None}, {"step": 2, "loss": None},
    ]  # fmt: skip
    metrics.close()


def test_lines_after_the_checkpoint_and_a_cut_one_are_dropped_on_resuming(tmp_path):
    metrics = opened(tmp_path)
    for step in range(1, 6):
        metrics.write(step, {"loss": float(step)})
    metrics.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 6, "lo')
    assert [record["step"] for record in read_metrics(tmp_path / FILE)] == [1, 2, 3, 4, 5]
    metrics = opened(tmp_path, resumed_at=3)
    metrics.write(4, {"loss": -4.0})
    metrics.close()
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, -4.0)]


@pytest.mark.parametrize("line", ["[1, 2]", '{"loss": 1}', '{"step": "one"}', "text"])
def test_lines_that_are_no_records_are_left_out(tmp_path, line):
    (tmp_path / FILE).write_text(f'{line}\n{{"step": 1}}\n')
    assert read_metrics(tmp_path / FILE) == [{"step": 1}]


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_a_tracker_gets_what_the_file_gets(tmp_path, monkeypatch, package):
    calls = []
    tracker = SimpleNamespace(
        init=lambda **options: calls.append(("init", options)),
        log=lambda values: calls.append(("log", values)),
        finish=lambda: calls.append(("finish",)),
    )
    monkeypatch.setitem(sys.modules, package, tracker)
    metrics = opened(tmp_path, **{package: "ours"})
    metrics.write(3, {"loss": 1.5})
    metrics.close()
    assert calls == [
        ("init", {"project": "ours", "name": "run", "config": {"seed": 1}}),
        ("log", {"loss": 1.5, "step": 3}),
        ("finish",),
    ]


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_missing_trackers_are_named(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"logging\.{package} needs the package {package}"):
        opened(tmp_path, **{package: "project"})
