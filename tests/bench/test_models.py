"""`iha bench model` runs, and the sizes it reports are what the mechanism promises. Speed itself is not a test."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from iha.models import benchmark


def test_cache_bytes_and_report(tmp_path: Path) -> None:
    settings = benchmark.Settings(["1m"], tokens=256, new_tokens=4, rounds=1)
    results = benchmark.run(settings, tmp_path / "model.json", progress=lambda _: None)
    assert json.loads((tmp_path / "model.json").read_text()) == results
    hybrid, everywhere, training = results["results"]
    # Four local layers keep W = N/(2P²) = 32 tokens, one keeps all 252 of the prompt; Llama's five keep all.
    assert hybrid["cache_ratio"] == pytest.approx((4 * 32 + 252) / (5 * 252))
    assert hybrid["cache_ratio"] <= 0.35
    assert everywhere["cache_ratio"] == 1.0
    assert training["ratio"] > 0
    mixing = 4 * (3 * 6 * 6 * 2 + 6 * 2)
    assert hybrid["parameters"]["iha"] - hybrid["parameters"]["llama"] == mixing
    console = Console(record=True, width=120)
    console.print(benchmark.table(results))
    assert "all-iha" in console.export_text()


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="no preset '9t'"):
        benchmark.Settings(["9t"])
    with pytest.raises(ValueError, match="new_tokens"):
        benchmark.Settings(["1m"], tokens=8, new_tokens=8)
