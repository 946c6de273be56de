"""`iha bench gpu`: the record written, and an exit code that says whether every backend is right."""

import pytest

from cli.calls import assert_refused, iha
from iha.records import Record, read_record

ERROR = {"case": "global", "dtype": "bfloat16", "backend": "flex", "refused": None, "crashed": None}


DECODING = {
    "size": [64, 2, 8], "num_pseudo_heads": 2, "window": 8, "num_cached": 64, "seconds_per_token": 3e-4,
    "seconds_per_token_multihead": 2e-4, "ratio": 1.5, "ratios": [1.4, 1.5, 1.6], "spread": 0.143,
}  # fmt: skip


def record(passed):
    rows = [{**ERROR, "ratios": {"out": 1.2 if passed else 7.5}, "passed": passed}]
    results = {"passed": passed, "gpu": {"name": "Abacus 1"}, "errors": rows, "comparisons": [], "decoding": [DECODING],
               "quiet": {"warnings": []}}  # fmt: skip
    config = {"sizes": [[64, 2, 8]], "dtypes": ["bfloat16"]}
    return Record.new("gpu-bench", command="iha bench gpu", config=config).finished(results)


@pytest.mark.parametrize(("passed", "code", "shown"), [(True, 0, "1.20"), (False, 1, "7.50 FAILED")])
def test_errors_too_large_are_an_exit_code(passed, code, shown, tmp_path, monkeypatch):
    asked = []

    def run(settings, command, progress):
        asked.append(settings.repeats)
        return record(passed)

    monkeypatch.setattr("iha.bench.gpu.run", run)
    result = iha("bench", "gpu", "--repeats", 4, "--out", tmp_path)
    assert result.exit_code == code, result.output
    assert asked == [4]
    assert shown in result.output
    assert read_record(tmp_path / "gpu.json", "gpu-bench").results["passed"] is passed


def test_without_a_gpu_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert_refused(iha("bench", "gpu", "--out", tmp_path / "out"), "GPU")
    assert not (tmp_path / "out").exists()
