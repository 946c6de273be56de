"""The tables of `iha bench eval`, from a record with numbers worked out by hand."""

import pytest

from iha.records import Record
from iha.report.bench_eval import eval_tables


def record(warnings=(), jail=None) -> Record:
    results = {
        "harness": {"seconds": {"harness": 2.0, "bare": 1.96}, "ratio": 1.0204, "spread": 0.012},
        "samples": {"seconds": {"shared": 1.0, "separate": 2.5}, "ratio": 0.4, "spread": None},
        "jail": jail or {"best": 0.0123},
        "ruler": [{"task": "vt", "length": 512, "tokens": 480, "first": 0.512, "next": 0.1}],
        "quiet": {"warnings": list(warnings)},
    }
    return Record.new("eval-bench", command="iha bench eval", config={"samples": 16}).finished(results)


def test_seconds_and_ratios() -> None:
    costs, ruler = eval_tables(record())
    assert costs.rows == [
        ["an evaluation", "bare generate, same batches", "2.00", "1.96", "1.02", "1%"],
        ["16 samples, prompt read once", "num_return_sequences", "1.00", "2.50", "0.40", "–"],
    ]
    assert costs.notes == ["jail: 12 ms per program, at best"]
    assert ruler.rows == [["vt", "512", "480", "0.51", "0.10"]]


@pytest.mark.parametrize(("warnings", "last"), [((), "bubblewrap is missing"), (["busy"], "warning: busy")])
def test_what_was_not_measured_and_what_cannot_be_relied_on(warnings, last) -> None:
    notes = eval_tables(record(warnings, {"unavailable": "bubblewrap is missing"}))[0].notes
    assert notes[0] == "bubblewrap is missing"
    assert notes[-1] == last
