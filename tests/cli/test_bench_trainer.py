"""`iha bench trainer`: options into settings, a table out of the record; measured in tests/bench/test_trainer.py."""

import json

import pytest

from cli.calls import assert_refused, iha
from iha.records import Record

SPEED = {"tokens_per_second": {"trainer": 900.0, "bare": 1000.0}, "ratio": 0.9, "ratio_of_medians": 0.95}
LOADER = [{"corpus_megabytes": 3, "grown_bytes": 2**21, "tokens_per_second": 12345.0}]


@pytest.fixture
def measured(monkeypatch):
    asked = []

    def run(settings, path, command, progress):
        asked.append((settings, path.name))
        return Record.new("trainer-bench", command=command, config={}).finished({"speed": SPEED, "loader": LOADER})

    monkeypatch.setattr("iha.bench.trainer.run", run)
    return asked


def test_options_reach_the_bench_and_its_table_is_shown(measured, recipe, tmp_path):
    words = [recipe, "parallel.micro_batch=2", "--steps", 12, "--corpus", "3,4", "--no-first-step"]
    result = iha("bench", "trainer", *words, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    ((settings, name),) = measured
    assert (settings.recipe, settings.overrides) == (recipe, ("parallel.micro_batch=2",))
    assert (settings.steps, settings.corpus_megabytes, settings.first_step) == (12, (3, 4), False)
    assert name == "trainer.json"
    for shown in ("0.900", "0.950", "12,345", "2.0"):
        assert shown in result.output


def test_json_is_the_record(measured, recipe, tmp_path):
    assert json.loads(iha("bench", "trainer", recipe, "--json", "--out", tmp_path).stdout)["results"]["speed"] == SPEED


def test_too_few_steps_are_refused(measured, recipe, tmp_path):
    assert_refused(iha("bench", "trainer", recipe, "--steps", 3, "--out", tmp_path / "out"), "at least 12, got 3")
    assert not (tmp_path / "out").exists()
