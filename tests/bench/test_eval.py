"""That the bench measures what it says; no time is asserted."""

import pytest

from iha.bench.eval import Settings, measure_harness, measure_ruler, measure_samples, run
from iha.records import read_record
from iha.report.bench_eval import eval_tables

SMALL = Settings(
    questions=3, prompt_tokens=20, new_tokens=4, samples=3, batch_size=2, rounds=1, lengths=(2000,), programs=1
)


def test_the_record_has_every_part_and_makes_tables(tmp_path):
    record = run(SMALL, tmp_path / "eval.json", "iha bench eval")
    assert read_record(tmp_path / "eval.json", "eval-bench").results == record.results
    assert set(record.results) == {"harness", "samples", "ruler", "jail", "quiet"}
    tables = eval_tables(record)
    assert len(tables[0].rows) == 2
    assert len(tables[1].rows) == 5


def test_both_sides_do_the_same_work(monkeypatch):
    """Forward passes: a prompt and one per further token, for each of two batches; the shared reading adds one."""
    from iha.models import IHAForCausalLM

    widths = []
    forward = IHAForCausalLM.forward

    def counted(self, input_ids=None, **options):
        widths.append(tuple(input_ids.shape))
        return forward(self, input_ids, **options)

    monkeypatch.setattr(IHAForCausalLM, "forward", counted)
    measure_harness(SMALL)
    one = [(2, 20), (2, 1), (2, 1), (2, 1), (1, 20), (1, 1), (1, 1), (1, 1)]
    assert widths == one * 4  # two sides, one round after one that does not count
    widths.clear()
    measure_samples(SMALL)
    shared, separate = [(1, 19), *[(3, 1)] * 4], [(3, 20), *[(3, 1)] * 3]
    assert widths == (shared + separate) * 2


def test_what_makes_no_sense_is_refused():
    for change in ({"rounds": 0}, {"samples": 1}, {"prompt_tokens": 3}):
        with pytest.raises(ValueError, match=str(next(iter(change)))):
            Settings(**change)


def test_ruler_rows():
    (row, *others) = measure_ruler(SMALL)
    assert row["task"] == "niah_single_1"
    assert row["tokens"] <= 2000
    assert len(others) == 4
