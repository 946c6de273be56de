"""Ratios as the records have them, with the machine they come from; what was not measured is named."""

from iha.records import Record, write_record
from iha.report.page.results import Results
from iha.report.page.speed import attention_table, model_table, speed_section

COMPARISON = {
    "what": "local IHA", "against": "SDPA", "num_tokens": 64, "num_pseudo_heads": 2, "direction": "forward",
    "ratio": 1.526,
}  # fmt: skip
MODELS = [
    {"what": "decoding", "preset": "1m", "variant": "hybrid", "ratio": 0.904, "cache_ratio": 0.3456},
    {"what": "training", "preset": "1m", "variant": "hybrid", "ratio": 1.2},
]


def record(kind, results):
    machine = {"processor": "Abacus", "threads": 2}
    return Record(kind, f"iha bench {kind}", {}, 0, machine, {}, None, "2026-01-01T00:00:00+00:00", 1.0, results)


def test_tables():
    attention = attention_table(record("attention-bench", {"comparisons": [COMPARISON]}), "this run")
    assert attention.title == "The operator (this run, Abacus, 2 threads)"
    assert attention.rows == [["local IHA", "SDPA", "64", "2", "forward", "1.53"]]
    for results in ({"rows": MODELS}, MODELS):  # the second is how older records have it
        models = model_table(record("model-bench", results), "committed")
        assert models.rows == [
            ["decoding", "1m", "hybrid", "0.90", "0.35"],
            ["training", "1m", "hybrid", "1.20", "–"],
        ]


def test_what_was_not_measured_is_named(tmp_path):
    html = speed_section(Results(None, None)).html()
    assert "<code>iha bench attention</code>" in html
    assert "<code>iha bench model</code>" in html
    write_record(tmp_path / "a.json", record("attention-bench", {"comparisons": [COMPARISON]}))
    html = speed_section(Results(tmp_path, None)).html()
    assert "Not run: the operator" not in html
    assert "Not run: the language model against Llama." in html
    assert "<code>iha bench attention-bench</code>" in html
