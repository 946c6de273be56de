"""The tables of the benches, from records that were not measured here."""

from typing import Any

import pytest

from iha.records import Record
from iha.report.bench import attention_tables, draw_growth, model_table

QUIET = {"load_before": 0.1, "load_after": 2.0, "largest_spread": 0.03, "warnings": []}


def record(kind: str, results: dict[str, Any], **config: Any) -> Record:
    return Record(kind, "iha bench", config, 0, {}, {}, None, "2026-01-01T00:00:00+00:00", 1.0, results)


def attention(warnings: list[str] | None = None, growth: bool = True) -> Record:
    comparison = {
        "what": "local IHA", "against": "SDPA", "num_tokens": 64, "num_pseudo_heads": 2, "window": None,
        "direction": "forward", "seconds": 0.0305, "seconds_against": 0.02, "ratio": 1.525, "ratios": [1.5],
        "spread": None,
    }  # fmt: skip
    memory = {
        "num_pseudo_heads": 2, "window": 8, "direction": "forward", "peak_bytes": 3 << 20, "largest_bytes": 1 << 20,
        "mixed_bytes": 2 << 20, "peak_over_mixed": 1.5,
    }  # fmt: skip
    points = [
        {"num_tokens": N, "num_pseudo_heads": P, "window": 8, "direction": direction, "seconds": 1e-6 * N * P,
         "seconds_sdpa": 1e-9 * N * N if N < 2048 else None}
        for N in (512, 1024, 2048) for P in (2, 4) for direction in ("forward", "forward + backward")
    ]  # fmt: skip
    decoding = {
        "num_pseudo_heads": 2, "window": 8, "num_cached": 64, "seconds_per_token": 3e-4,
        "seconds_per_token_multihead": 2e-4, "ratio": 1.5, "ratios": [1.4, 1.5, 1.6], "spread": 0.143,
    }  # fmt: skip
    results = {
        "comparisons": [comparison], "memory": [memory], "growth": points if growth else [], "mechanisms": [],
        "decoding": [decoding], "quiet": {**QUIET, "warnings": warnings or []},
    }  # fmt: skip
    return record("attention-bench", results, tokens=64, heads=2, head_dim=8, repeats=9)


def test_times_ratios_and_what_is_missing() -> None:
    compared, memory, growth, decoding = attention_tables(attention())
    assert decoding.rows == [["2", "8", "300", "200", "1.50", "1.40 1.50 1.60"]]
    assert compared.rows == [["local IHA", "SDPA", "2", "–", "forward", "30", "20", "1.52", "1.50"]]
    assert memory.rows == [["2", "8", "forward", "3.0 MiB", "1.0 MiB", "2.0 MiB", "1.50"]]
    assert growth.rows[0] == ["512", "2", "forward", "1", "2.0", "0"]
    assert growth.rows[-1] == ["2048", "4", "forward + backward", "8", "4.0", "–"]
    assert len(attention_tables(attention(growth=False))) == 3


def test_a_warning_stands_under_the_ratios() -> None:
    table = attention_tables(attention(["the machine was busy"]))[0]
    assert "warning: the machine was busy" in table.notes
    assert not any("warning" in note for note in attention_tables(attention())[0].notes)


def test_models() -> None:
    row = {
        "what": "decoding", "preset": "1m", "variant": "hybrid", "tokens_per_second": {"iha": 10.0, "llama": 8.0},
        "ratio": 1.25, "ratios": [1.25, 1.04], "spread": 0.21, "cache_ratio": 0.3456, "iha_compiled_static_cache": True,
    }  # fmt: skip
    results = {"rows": [row], "quiet": {**QUIET, "warnings": ["1 of 1 ratios differ"]}}
    table = model_table(record("model-bench", results))
    assert table.rows == [["decoding compiled", "1m", "hybrid", "10.0", "8.0", "1.25", "1.25 1.04", "0.346"]]
    assert table.notes == ["warning: 1 of 1 ratios differ"]
    trained = {**row, "what": "training", "iha_compiled_static_cache": False, "compiled": True}
    table = model_table(record("model-bench", {**results, "rows": [row, trained]}))
    assert [cells[0] for cells in table.rows] == ["decoding compiled", "training compiled"]


def test_growth_is_drawn_alike_every_time(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    draw_growth(attention(), tmp_path / "attention.svg")
    text = (tmp_path / "attention.svg").read_text()
    assert text.startswith("<?xml")
    assert "<dc:date>" not in text
