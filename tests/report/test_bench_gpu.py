"""The tables of `iha bench gpu`: errors over the formula's, refusals, crashes and failures told apart."""

from iha.records import Record
from iha.report.bench_gpu import gpu_tables

DECODING = {
    "size": [64, 2, 8], "num_pseudo_heads": 2, "window": 8, "num_cached": 64, "seconds_per_token": 3e-4,
    "seconds_per_token_multihead": 2e-4, "ratio": 1.5, "ratios": [1.4, 1.5, 1.6], "spread": 0.143,
}  # fmt: skip
COMPARISON = {
    "what": "local IHA", "against": "SDPA", "num_tokens": 64, "num_pseudo_heads": 2, "window": 8, "backend": "flex",
    "direction": "forward", "seconds": 0.0305, "seconds_against": 0.02, "ratio": 1.525, "ratios": [1.5],
    "spread": None, "size": [64, 2, 8],
}  # fmt: skip


def error(backend, passed=True, refused=None, crashed=None, worst=1.25):
    row = {"case": "global", "dtype": "bfloat16", "backend": backend, "passed": passed}
    return {**row, "refused": refused, "crashed": crashed, "ratios": {"out": 0.5, "q": worst}}


def test_every_kind_of_outcome() -> None:
    rows = [
        error("sdpa"), error("flex", passed=False, worst=7.5), error("flash", refused="no kernel here"),
        error("banded", passed=False, crashed="CUDA error"),
    ]  # fmt: skip
    results = {
        "gpu": {"name": "Abacus 1"}, "errors": rows, "quiet": {"warnings": ["busy"]},
        "comparisons": [COMPARISON, {**COMPARISON, "size": [128, 2, 8]}], "decoding": [DECODING],
    }  # fmt: skip
    config = {"sizes": [[64, 2, 8]], "dtypes": ["bfloat16"]}
    errors, times, decoding = gpu_tables(Record.new("gpu-bench", command="", config=config).finished(results))
    assert [column.title for column in errors.columns] == ["case", "dtype", "sdpa", "flex", "flash", "banded"]
    assert errors.rows == [["global", "bfloat16", "1.25", "7.50 FAILED", "–", "crashed FAILED"]]
    assert "Abacus 1" in times.title
    assert [row[0] for row in times.rows] == ["local IHA, flex"]  # of this size alone
    assert times.notes[-1] == "warning: busy"
    assert decoding.rows[0][-2:] == ["1.50", "1.40 1.50 1.60"]
