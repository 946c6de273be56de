"""Curves and lengths have the records' numbers, averaged over seeds."""

import pytest

from iha.experiment.compare import compare
from iha.report.scale_model_charts import curve_charts, difference_chart, length_chart
from scale_model_records import measured_record, run_record


def rows(chart, **chosen):
    return [row for row in chart.spec["data"]["values"] if all(row[key] == value for key, value in chosen.items())]


def test_loss_three_ways():
    runs = [run_record("iha", seed, (3.0, 2.0 + seed), flops=2e9, speed=10.0) for seed in (0, 1)]
    runs += [run_record("iha", 0, (9.0,), rate=1e-2), run_record("iha", 0, (9.0, 9.0), variant="P=8")]
    tokens, flops, time, learned = curve_charts(runs)
    assert [(row["value"], row["low"], row["high"]) for row in rows(tokens)] == [(3.0, 3.0, 3.0), (2.5, 2.0, 3.0)]
    assert [row["x"] for row in rows(flops)] == pytest.approx([0.2, 0.4])  # 100 tokens of 2 GFLOPs, in 10¹²
    assert [row["x"] for row in rows(time)] == pytest.approx([1 / 6, 1 / 3])  # 100 tokens at 10 a second, in minutes
    assert [row["value"] for row in rows(learned, puzzle="pairs")] == pytest.approx([10.0, 60.0, 97.0])


def test_nothing_to_draw():
    assert curve_charts([run_record("iha", 0, (9.0,), rate=1e-2)]) == []
    assert length_chart([measured_record("iha", 0)]) == []
    assert difference_chart(compare([run_record("global", 0, (1.0,))]), "iha") == []


def test_lengths_before_and_after():
    measured = [
        measured_record("iha", 0, retrieval={"single": {"512": 0.5, "1024": 0.25}, "niah_single_1": {"512": 1.0}}),
        measured_record("iha", 1, retrieval={"single": {"512": 1.0}}),
        measured_record("iha", 0, "adapt", retrieval={"single": {"512": 0.75}}),
    ]
    (chart,) = length_chart(measured)
    before = [(row["tokens"], row["value"], row["low"], row["high"]) for row in rows(chart, panel="single, before")]
    assert before == [(512, 75.0, 50.0, 100.0), (1024, 25.0, 25.0, 25.0)]
    assert [row["value"] for row in rows(chart, panel="single, after adaptation")] == [75.0]
    assert len(rows(chart)) == 3


def test_differences_to_the_baseline():
    runs = [run_record("global", seed, (1.0,)) for seed in (0, 1)]
    runs += [run_record("iha", seed, (0.9 + seed / 5,)) for seed in (0, 1)]
    (chart,) = difference_chart(compare(runs), "iha")
    (row,) = rows(chart, model="iha")
    assert (row["value"], row["low"], row["high"]) == pytest.approx((0.0, -0.1, 0.1))
