"""`iha bench eval`: options into settings, tables out of the record; measured in tests/bench/test_eval.py."""

import json

import pytest

from cli.calls import assert_refused, iha
from iha.records import Record

COMPARED = {"ratio": 1.02, "spread": 0.01}
RESULTS = {
    "harness": {"seconds": {"harness": 2.0, "bare": 1.96}, **COMPARED},
    "samples": {"seconds": {"shared": 1.0, "separate": 2.0}, "ratio": 0.5, "spread": None},
    "jail": {"best": 0.012}, "ruler": [{"task": "vt", "length": 512, "tokens": 480, "first": 0.5, "next": 0.1}],
    "quiet": {"warnings": []},
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    asked = []

    def run(settings, path, command, progress):
        asked.append(settings)
        config = {"samples": settings.samples}
        return Record.new("eval-bench", command=command, config=config).finished(RESULTS)

    monkeypatch.setattr("iha.bench.eval.run", run)
    return asked


def test_options_reach_the_bench_and_its_tables_are_shown(measured, tmp_path):
    words = ["--preset", "1m", "--lengths", "512, 1024,", "--samples", 4, "--data", tmp_path, "--programs", 3]
    result = iha("bench", "eval", *words, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    (settings,) = measured
    assert (settings.preset, settings.lengths, settings.samples) == ("1m", (512, 1024), 4)
    assert (settings.data, settings.programs) == (str(tmp_path), 3)
    assert "4 samples, prompt read once" in result.output
    assert "jail: 12 ms per program" in result.output


def test_json_is_the_record(measured, tmp_path):
    result = iha("bench", "eval", "--json", "--out", tmp_path / "out")
    assert json.loads(result.stdout)["results"] == RESULTS


def test_bad_numbers_are_refused(measured, tmp_path):
    assert_refused(iha("bench", "eval", "--samples", 1, "--out", tmp_path / "out"), "samples must be at least 2")
    assert not measured
    assert not (tmp_path / "out").exists()
