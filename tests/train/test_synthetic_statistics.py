"""Summaries of made-up records whose numbers are known, FLOPs against the formula, and plots that appear."""

from pathlib import Path
from typing import Any

import pytest

from iha.tasks import TASKS
from iha.train.synthetic.config import RunConfig
from iha.train.synthetic.flops import forward_flops
from iha.train.synthetic.model import SyntheticModel
from iha.train.synthetic.statistics import at, spread, summarise

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
    assert (mha["label"], iha["label"]) == ("mha", "iha P2")
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
    assert labels == ["mha H8", "mha H2", "iha H8 P4 random", "iha H8 P4 one_hot"]


@pytest.mark.parametrize(("mechanism", "P"), [("mha", 1), ("iha", 1), ("iha", 4)])
def test_flops_by_formula(mechanism: str, P: int) -> None:
    N, E, H = 36, 32, 4
    model = SyntheticModel(TASKS["binary"], mechanism, width=E, num_heads=H, num_pseudo_heads=P)
    dense = 2 * N * (4 * E * E + 8 * E * E + E)  # projections, MLP, read-out
    attention = 2 * 2 * (N * P) ** 2 * E
    mixing = 4 * 2 * N * (P * H) * E if mechanism == "iha" else 0  # three alphas and R, as an (H, P*H) matrix
    assert forward_flops(model, 6) == dense + attention + mixing


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from iha.train.synthetic.plots import plot_sweep

    records = [record([0.5, 0.7], 1, seed=s) for s in (0, 1)] + [record([0.4, 0.6], 2, learning_rate=1e-4)]
    for path in plot_sweep(records, tmp_path):
        assert path.stat().st_size > 5000


def test_what_is_kept_of_a_sweep(tmp_path: Path) -> None:
    from iha.train.synthetic import checkpoint
    from iha.train.synthetic.collect import collect, write_page

    (tmp_path / "runs").mkdir()
    (tmp_path / "kept").mkdir()
    done = record([0.123456789, 0.7], 1)
    content = {"command": "iha synth binary --out somewhere/private", "runs": [done["config"]]}
    checkpoint.write_json(tmp_path / "sweep.json", content)
    assert collect(tmp_path) is None
    name = CONFIG.name
    extra = {"name": name, "machine": {"cores": 2}, "progress": {"epoch": 2}}
    checkpoint.write_json(tmp_path / "runs" / f"{name}.json", done | extra)
    kept = collect(tmp_path)
    assert kept is not None
    assert kept["command"] == "iha synth binary"
    assert (kept["runs_planned"], kept["runs_finished"]) == (1, 1)
    assert kept["runs"][0]["history"][0]["test"] == 0.123457
    checkpoint.write_json(tmp_path / "kept" / "some.json", kept)
    write_page(tmp_path / "kept")
    page = (tmp_path / "kept" / "README.md").read_text().splitlines()
    assert "`iha synth binary`: 1 of 1 runs finished." in page
    assert "|  | seeds | epoch 1 | epoch 2 | at 20 FLOPs | after 2 s | s/epoch | FLOPs/epoch |" in page
    assert "| mha | 1 | 12.3 (1) | 70.0 (1) | 70.0 (1) | 70.0 (1) | 1.0 | 1.00e+01 |" in page
