"""Comparisons against numbers worked out by hand."""

import pytest

from iha.experiment.compare import compare, first_reach, interpolated, summary
from iha.records import Record


def record(mechanism, seed, losses, flops=1.0, speed=10.0, variant="", accuracy=(0.1, 0.6, 0.97)):
    config = {
        "phase": "pretrain", "mechanism": mechanism, "variant": variant, "label": mechanism + variant, "seed": seed,
        "learning_rate": 1e-3, "tokens": 300, "name": f"pretrain-{mechanism}-s{seed}",
    }  # fmt: skip
    results = {
        "parameters": 10, "flops_per_token": flops, "tokens_per_second": {"median": speed, "best": speed},
        "peak_bytes": 1, "skipped": 0, "training": [],
        "validation": [{"tokens": 100 * (i + 1), "text": loss, "pairs": loss} for i, loss in enumerate(losses)],
        "probe": [{"tokens": 100 * (i + 1), "pairs": value} for i, value in enumerate(accuracy)],
    }  # fmt: skip
    return Record("scale-model-run", "iha", config, seed, {}, {}, None, "2026-01-01T00:00:00+00:00", 1.0, results)


@pytest.fixture
def compared():
    records = [record("global", seed, (3.0, 2.0, 1.0 + seed / 10)) for seed in range(3)]
    records += [record("iha", seed, (3.0, 2.0, 0.9 + seed / 10), flops=2.0, speed=5.0) for seed in range(3)]
    return {row["label"]: row for row in compare(records)["rows"]}


def test_differences_are_paired_by_seed(compared):
    paired = compared["iha"]["paired"]
    assert paired["values"] == pytest.approx([-0.1] * 3)
    assert paired["sd"] == pytest.approx(0, abs=1e-12)  # the seeds' spread, 0.1, is not in it
    assert compared["iha"]["loss"]["text"]["sd"] == pytest.approx(0.1)


def test_equal_flops_and_time_give_less_training_to_the_dearer_one(compared):
    # Half of the tokens: between the validations at 100 and 200 tokens.
    assert compared["iha"]["equal"]["flops"]["mean"] == pytest.approx(2.5)
    assert compared["iha"]["equal"]["seconds"]["mean"] == pytest.approx(2.5)
    assert compared["global"]["equal"]["flops"]["mean"] == pytest.approx(1.1)


def test_levels_are_reached_at_a_number_of_tokens(compared):
    assert compared["iha"]["learned"]["pairs"] == {"0.5": [200] * 3, "0.95": [300] * 3}
    assert first_reach(record("iha", 0, (1.0,), accuracy=(0.1,)), "pairs", 0.5) is None


def test_a_run_is_never_credited_with_more_than_it_did():
    curve = [{"tokens": 100, "text": 3.0}, {"tokens": 200, "text": 2.0}]
    assert [interpolated(curve, "text", tokens) for tokens in (50, 100, 150, 200, 500)] == [3.0, 3.0, 2.5, 2.0, 2.0]


def test_the_interval_is_students():
    found = summary([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["sd"] == 1.0
    assert found["ci95"] == pytest.approx(4.303 / 3**0.5)
    assert summary([])["mean"] is None
    assert summary([1.0])["ci95"] is None


def test_no_runs_are_an_error():
    with pytest.raises(ValueError, match="no runs of phase 'tune'"):
        compare([record("iha", 0, (1.0,))], "tune")
