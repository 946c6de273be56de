"""Summaries of made-up runs whose numbers are known."""

from typing import Any

import pytest

from iha.synthetic.config import RunConfig
from iha.synthetic.statistics import at, spread, stopped_by_loss, summarise

CONFIG = RunConfig("binary", "mha", (6,), num_pseudo_heads=1, init="")


def record(scores: list[float], cost: float, seed: int = 0, **changes: Any) -> dict[str, Any]:
    history = [
        {
            "epoch": i + 1,
            "train": s,
            "validation": s,
            "test": s,
            "flops": 10 * cost,
            "cpu_seconds": cost,
            "seconds": cost,
        }
        for i, s in enumerate(scores)
    ]
    return {
        "config": CONFIG.as_json() | {"seed": seed} | changes, "finished": True, "history": history,
        "best": max(history, key=lambda entry: entry["validation"]), "parameters": 7, "mixing_parameters": 0,
        "flops_per_epoch": 10 * cost,
    }  # fmt: skip


def test_equal_epochs_flops_and_time() -> None:
    cheap = [record([0.5, 0.6, 0.7, 0.8], cost=1, seed=seed) for seed in (0, 1)]
    dear = record([0.6, 0.9], cost=3, mechanism="iha", num_pseudo_heads=2, init="one_hot")
    summary = summarise([*cheap, dear])
    assert summary["equal"] == {"epochs": 2, "flops": 40, "cpu_seconds": 4}
    mha, iha = summary["variants"]
    assert (mha["label"], iha["label"]) == ("MHA", "IHA P2")
    assert mha["seeds"] == [0, 1]
    assert mha["final"] == {"n": 2, "mean": 0.8, "sd": 0.0, "min": 0.8, "max": 0.8}
    assert mha["equal_epochs"]["mean"] == 0.6
    assert mha["equal_flops"]["mean"] == 0.8
    assert iha["equal_flops"]["mean"] == pytest.approx(0.6 + 0.3 / 3)  # a third of the way into its second epoch
    assert iha["equal_cpu_seconds"]["mean"] == pytest.approx(0.7)


def test_a_budget_below_the_first_epoch_has_no_score() -> None:
    assert at(record([0.6, 0.9], cost=3), "cpu_seconds", 2.9) is None
    assert at(record([0.6, 0.9], cost=3), "cpu_seconds", 100) == 0.9  # stopped early, by itself
    assert at(record([0.6, 0.9], cost=3) | {"finished": False}, "cpu_seconds", 100) is None
    assert spread([None, None]) is None


def test_a_run_that_was_stopped_holds_nobody_back() -> None:
    stopped = record([0.4], cost=1, seed=1) | {"finished": False}
    summary = summarise([record([0.5, 0.6, 0.7], cost=1), stopped])
    assert summary["equal"] == {"epochs": 3, "flops": 30, "cpu_seconds": 3}
    (mha,) = summary["variants"]
    for key in ("equal_epochs", "equal_flops", "equal_cpu_seconds"):
        assert mha[key] == {"n": 1, "mean": 0.7, "sd": 0.0, "min": 0.7, "max": 0.7}
    assert summarise([stopped])["equal"]["epochs"] == 1  # nothing else to go by


def test_spread_is_the_sample_standard_deviation() -> None:
    result = spread([0.1, 0.2, 0.6])
    assert result is not None
    assert result["mean"] == pytest.approx(0.3)
    assert result["sd"] == pytest.approx(((0.04 + 0.01 + 0.09) / 2) ** 0.5)


def test_nothing_to_summarise() -> None:
    with pytest.raises(ValueError, match="no run"):
        summarise([])


def test_labels_tell_variants_apart() -> None:
    iha = {"mechanism": "iha", "num_pseudo_heads": 4}
    records = [
        record([0.5], 1), record([0.5], 1, num_heads=2),
        record([0.5], 1, init="random", **iha), record([0.5], 1, init="one_hot", **iha),
    ]  # fmt: skip
    labels = [variant["label"] for variant in summarise(records)["variants"]]
    assert labels == ["MHA H8", "MHA H2", "IHA H8 P4 random", "IHA H8 P4 one_hot"]


def test_labels_show_pseudo_keys_where_they_differ() -> None:
    records = [record([0.5], 1, mechanism="iha", num_pseudo_heads=P, num_pseudo_keys=k) for P, k in ((1, 4), (2, None))]
    labels = [variant["label"] for variant in summarise(records)["variants"]]
    assert labels == ["IHA P1 P_k 4", "IHA P2"]


def test_where_a_run_would_have_stopped_by_loss() -> None:
    run = record([0.5, 0.7, 0.8, 0.9, 0.95], cost=1, patience=2)
    for entry, loss in zip(run["history"], (0.5, 0.4, 0.6, 0.7, 0.3), strict=True):
        entry["validation_loss"] = loss
    assert stopped_by_loss(run) == (4, 0.7)
    run["config"]["patience"] = 3
    assert stopped_by_loss(run) is None
