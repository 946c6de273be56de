"""What `iha bench gpu` measures, run on CPU where the code is the same, and what it says without a GPU."""

import pytest
import torch

from iha.bench import gpu
from iha.report.bench_gpu import gpu_tables

SMALL = gpu.Settings(
    device="cpu", sizes=((64, 2, 16),), pseudo_heads=(2,), dtypes=("float32",), repeats=3, draws=2, tokens=60,
    decoding_window=16,
)  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so():
    with pytest.raises(ValueError, match="there is no GPU here"):
        gpu.run(gpu.Settings(), "iha bench gpu")


@pytest.mark.parametrize("backend", ["auto", "sdpa", "banded"])
def test_errors_are_those_of_the_precision_and_refusals_have_reasons(backend):
    for case in gpu._options(2, 60):
        found = gpu.measure_error(SMALL, "float32", case, backend)
        if backend == "auto":
            assert found.refused is None
        assert found.passed, found
        assert found.refused is not None or found.ratios.keys() == set(gpu.NAMES)
    assert gpu.measure_error(SMALL, "float32", "window", "sdpa").refused
    assert "CUDA" in gpu.measure_error(SMALL, "float32", "window", "flash").refused


def test_a_wrong_backend_fails(monkeypatch):
    right = gpu.interleaved_head_attention
    monkeypatch.setattr(gpu, "interleaved_head_attention", lambda *t, window=None, **o: right(*t, window=39, **o))
    assert not gpu.measure_error(SMALL, "float32", "window", "auto").passed


def test_a_crash_is_recorded_and_fails(monkeypatch):
    def crash(*_, **__):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(gpu, "interleaved_head_attention", crash)
    found = gpu.measure_error(SMALL, "float32", "window", "flex")
    assert (found.crashed, found.passed) == ("RuntimeError: no kernel image", False)


def test_the_record_is_complete_and_its_tables_show_it(monkeypatch):
    monkeypatch.setattr(gpu, "BACKENDS", ("auto", "flash"))
    cases = gpu._options
    monkeypatch.setattr(gpu, "_options", lambda *a: {name: cases(*a)[name] for name in ("global", "window")})
    record = gpu.run(SMALL, "iha bench gpu")
    assert record.results["passed"] is True
    assert {row["backend"] for row in record.results["comparisons"]} == {"auto"}  # flash and flex refuse a CPU
    assert all(len(row["ratios"]) == 3 for part in ("comparisons", "decoding") for row in record.results[part])
    errors, speeds, decoding = gpu_tables(record)
    assert [row[3] for row in errors.rows] == ["–", "–"]
    assert len(speeds.rows) == 4
    assert len(decoding.rows) == 2
