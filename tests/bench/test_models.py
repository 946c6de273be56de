"""`iha bench model`: the sizes it reports are what the mechanism promises. Speed itself is not a test."""

from pathlib import Path

import pytest

from iha.bench import models as bench
from iha.records import read_record


def test_cache_bytes_and_record(tmp_path: Path) -> None:
    settings = bench.Settings(["1m"], tokens=256, new_tokens=4, rounds=1)
    record = bench.run(settings, tmp_path / "model.json", "iha bench model")
    assert read_record(tmp_path / "model.json", "model-bench") == record
    hybrid, everywhere, training = record.results["rows"]
    # Four local layers keep W = N/(2P²) = 32 tokens, one keeps all 252 of the prompt; Llama's five keep all.
    assert hybrid["cache_ratio"] == pytest.approx((4 * 32 + 252) / (5 * 252))
    assert hybrid["cache_ratio"] <= 0.35
    assert everywhere["cache_ratio"] == 1.0
    for row in (hybrid, everywhere, training):
        speed = row["tokens_per_second"]
        assert row["ratio"] == pytest.approx(speed["iha"] / speed["llama"])  # above 1 where IHA is the faster one
    mixing = 4 * (3 * 6 * 6 * 2 + 6 * 2)
    assert hybrid["parameters"]["iha"] - hybrid["parameters"]["llama"] == mixing


def test_what_is_finished_is_on_disk_before_the_next_measurement(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    row = {"what": "decoding", "spread": 0.5}
    monkeypatch.setattr(bench, "measure_decoding", lambda *_, **__: row)
    monkeypatch.setattr(bench, "measure_training", fail)
    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.Settings(["1m"]), tmp_path / "model.json", "iha bench model")
    left = read_record(tmp_path / "model.json", "model-bench").results
    assert left["rows"] == [row, row]
    assert left["quiet"]["largest_spread"] == 0.5


def test_compiled_adds_a_training_step_and_a_decoding(monkeypatch) -> None:
    """Both models are compiled for the training step. Here compiling does nothing: it would take minutes."""
    made = []
    monkeypatch.setattr(bench.torch, "compile", lambda model: made.append(model) or model)
    row = bench.measure_training("1m", "hybrid", 64, 2, rounds=3, compiled=True)
    assert [type(model).__name__ for model in made] == ["IHAForCausalLM", "LlamaForCausalLM"]
    assert row["compiled"] is True
    assert len(row["ratios"]) == 3
    assert set(row["tokens_per_second"]) == {"iha", "llama", "iha eager"}
    eager, compiled = (row["tokens_per_second"][label] for label in ("iha eager", "iha"))
    assert row["to_eager"]["ratio"] == pytest.approx(compiled / eager)
    names = [name for name, _ in bench._measurements(bench.Settings(["1m"], compiled=True))]
    assert names[-3:] == [
        "1m hybrid: decoding, compiled", "1m hybrid: training step", "1m hybrid: training step, compiled"
    ]  # fmt: skip


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="no preset '9t'"):
        bench.Settings(["9t"])
    with pytest.raises(ValueError, match="new_tokens"):
        bench.Settings(["1m"], tokens=8, new_tokens=8)
