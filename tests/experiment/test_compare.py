"""Comparisons against numbers worked out by hand."""

import pytest

from iha.experiment.compare import compare, first_reach, interpolated
from scale_model_records import run_record as record


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


def test_a_sweep_is_compared_by_itself():
    main = [record(name, 0, (3.0, 2.0, 1.0)) for name in ("global", "iha")]
    rates = [record("iha", 0, (4.0, loss), rate=r) for r, loss in ((1e-5, 3.0), (1e-3, 2.0), (2e-2, 5.0))]
    alone, both = compare(main), compare([*rates, *main])
    assert both["rows"] == alone["rows"]
    assert both["budget"] == alone["budget"]
    (swept,) = both["sweep"]
    assert [(row["rate"], row["loss"]["mean"]) for row in swept["rates"]] == [(1e-5, 3.0), (1e-3, 2.0), (2e-2, 5.0)]
    assert (swept["best"], swept["taken"], swept["at_the_edge"], swept["tokens"]) == (1e-3, [1e-3], False, 200)
    assert compare(rates)["rows"] == []
    assert compare(rates[:2])["sweep"][0]["at_the_edge"]


def test_a_phase_without_text_is_compared_by_what_it_trains_on():
    rows = compare([record("iha", 0, (3.0, 1.0), phase="tune", source="arithmetic")], "tune")
    assert rows["source"] == "arithmetic"
    assert rows["rows"][0]["equal"]["tokens"]["mean"] == 1.0


def test_ablations_are_compared_with_the_default_too():
    runs = [record("global", 0, (1.0,)), record("iha", 0, (0.8,)), record("iha", 0, (0.9,), variant="P=8")]
    rows = {row["label"]: row for row in compare(runs)["rows"]}
    assert rows["ihaP=8"]["paired"]["mean"] == pytest.approx(-0.1)
    assert rows["ihaP=8"]["paired_default"]["mean"] == pytest.approx(0.1)
    assert rows["iha"]["paired_default"] is None


def test_runs_of_other_lengths_and_seeds_are_not_paired():
    runs = [record("global", 0, (1.0, 0.5)), record("iha", 0, (0.8,)), record("iha", 1, (0.8,))]
    rows = {row["label"]: row for row in compare(runs)["rows"]}
    assert rows["iha"]["paired"]["n"] == 0


def test_a_run_can_name_its_own_baseline():
    own = record("global", 0, (1.0,), variant="retrieval", phase="upcycle")
    converted = record("iha", 0, (0.7,), phase="upcycle", baseline=own.config["name"])
    rows = {row["label"]: row for row in compare([own, converted], "upcycle")["rows"]}
    assert rows["iha"]["paired"]["mean"] == pytest.approx(-0.3)
    assert rows["iha"]["paired_accuracy"]["pairs"]["mean"] == 0


def test_no_runs_are_an_error():
    with pytest.raises(ValueError, match="no runs of phase 'tune'"):
        compare([record("iha", 0, (1.0,))], "tune")


def test_pseudo_heads_are_credited_with_what_one_in_the_same_window_does_not_have():
    """The control's name is that of its run; a run without one has no such difference."""
    control = record(
        "iha", 0, (0.85,), variant="P=1 in the window of P=4", name="pretrain-iha-p1-in-the-window-of-p4-s0"
    )
    four = record("iha", 0, (0.6,), variant="P=4")
    rows = {row["label"]: row for row in compare([record("global", 0, (1.0,)), control, four])["rows"]}
    assert rows["ihaP=4"]["paired_control"]["values"] == pytest.approx([-0.25])
    assert rows["ihaP=4"]["paired_parts"]["pairs"]["values"] == pytest.approx([-0.4])
    assert rows["global"]["paired_control"]["mean"] is None
