"""`iha bench model`: options into settings, the record out of it; measured in tests/bench/test_models.py."""

import json

import pytest

from cli.calls import assert_refused, iha
from iha.records import Record

ROW = {
    "what": "decoding", "preset": "1m", "variant": "hybrid", "tokens_per_second": {"iha": 10.0, "llama": 8.0},
    "ratio": 1.25, "ratios": [1.2, 1.25, 1.3], "spread": 0.21, "cache_ratio": 0.3456,
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    asked = []

    def run(settings, path, command, progress):
        asked.append((settings, path.name, command))
        return Record.new("model-bench", command=command, config={}).finished(
            {"rows": [ROW], "quiet": {"warnings": ["busy"]}}
        )

    monkeypatch.setattr("iha.bench.models.run", run)
    return asked


def test_options_reach_the_bench_and_its_ratios_are_shown(measured, tmp_path):
    words = ["--presets", "1m,10m", "--tokens", 64, "--new-tokens", 5, "--rounds", 3, "--no-training", "--compiled"]
    result = iha("bench", "model", *words, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    ((settings, name, command),) = measured
    assert (settings.presets, settings.tokens, settings.new_tokens) == (["1m", "10m"], 64, 5)
    assert (settings.rounds, settings.compiled, settings.training, settings.decoding) == (3, True, False, True)
    assert name == "model.json"
    assert command.startswith("iha bench model --presets 1m,10m")
    assert "1.25" in result.output
    assert "warning: busy" in result.output


def test_json_is_the_record(measured, tmp_path):
    result = iha("bench", "model", "--json", "--out", tmp_path)
    assert json.loads(result.stdout)["results"]["rows"] == [ROW]


def test_nothing_to_measure_is_refused(measured, tmp_path):
    words = ["--no-training", "--no-decoding", "--out", tmp_path / "out"]
    assert_refused(iha("bench", "model", *words), "leave nothing to measure")
    assert not measured
