"""The figures of a sweep: curves against every price, worked out by hand, and bars that say what was stopped."""

import math
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from iha.report import synthetic_plots
from iha.report.synthetic_plots import plot_sweep
from iha.synthetic.config import RunConfig

CONFIG = RunConfig("binary", "multihead", (6,), num_pseudo_heads=1, init="")


def run(scores: list[float], seed: int = 0, flops: float = 10, finished: bool = True, **changes: Any) -> dict[str, Any]:
    history = [
        {"epoch": i + 1, "train": s, "validation": s, "test": s, "flops": flops, "cpu_seconds": 2, "seconds": 1}
        for i, s in enumerate(scores)
    ]
    return {
        "config": CONFIG.as_json() | {"seed": seed} | changes, "finished": finished, "history": history,
        "best": max(history, key=lambda entry: entry["validation"]), "parameters": 7, "mixing_parameters": 0,
        "flops_per_epoch": flops, "progress": {"epoch": len(scores), "step": 0, "steps": 4}, "machine": {"cores": 2},
    }  # fmt: skip


@pytest.fixture
def figures(monkeypatch):
    """What is drawn, by file name, before it becomes pixels."""
    kept = {}

    def save(figure, path):
        kept[path.name] = figure
        return path

    monkeypatch.setattr(synthetic_plots, "_save", save)
    return kept


def points(axes) -> dict[str, list[tuple[float, float]]]:
    return {line.get_label(): [(float(x), round(float(y), 6)) for x, y in line.get_xydata()] for line in axes.lines}


def test_curves_are_means_over_seeds_as_far_as_all_of_them_got(figures, tmp_path):
    records = [run([0.5, 0.7, 0.9]), run([0.7, 0.9], seed=1, flops=30), run([0.6], learning_rate=1e-4)]
    assert [path.name for path in plot_sweep(records, tmp_path)] == ["curves.png", "price.png", "bars.png"]
    epochs, flops, seconds = figures["price.png"].get_axes()
    label = next(name for name in points(epochs) if len(points(epochs)[name]) == 2)
    assert points(epochs)[label] == [(1, 60), (2, 80)]
    assert points(flops)[label] == [(20, 60), (40, 80)]  # the mean of 10 and 30 per epoch
    assert points(seconds)[label] == [(2, 60), (4, 80)]
    assert len(figures["curves.png"].get_axes()) == 2  # one picture per learning rate


def test_bars_are_final_scores_and_say_what_was_stopped(figures, tmp_path):
    plot_sweep([run([0.5, 0.75]), run([0.6, 0.5], finished=False, num_heads=2)], tmp_path)
    (axes,) = figures["bars.png"].get_axes()
    assert sorted(round(bar.get_height(), 6) for bar in axes.patches) == [60, 75]
    texts = [text.get_text() for text in axes.texts]
    assert sum("stopped" in text for text in texts) == 1
    assert sorted(bar.get_hatch() or "" for bar in axes.patches) == ["", "//"]


def test_whiskers_are_for_more_than_one_seed(figures, tmp_path):
    plot_sweep([run([0.5]), run([0.7], seed=1), run([0.6], num_heads=2)], tmp_path)
    (axes,) = figures["bars.png"].get_axes()
    whiskers = [line.get_ydata() for line in axes.lines]  # lower and upper caps
    sd = 100 * 0.02**0.5
    expected = [[60 - sd, math.nan], [60 + sd, math.nan]]
    for found, ends in zip(whiskers, expected, strict=True):
        assert list(found) == pytest.approx(ends, nan_ok=True)


def test_a_mechanism_has_one_colour_and_a_panel_per_learning_rate(figures, tmp_path):
    plot_sweep([run([0.5]), run([0.6], num_heads=2), run([0.7], learning_rate=1e-4)], tmp_path)
    first, second = figures["bars.png"].get_axes()
    assert [text.get_text() for text in first.get_xticklabels()] == ["MHA H8", "MHA H2"]
    assert [text.get_text() for text in second.get_xticklabels()] == ["MHA H8"]
    colours = [bar.get_facecolor() for bar in first.patches]
    assert colours[0] == second.patches[0].get_facecolor() != colours[1]
    assert {line.get_linestyle() for line in figures["price.png"].get_axes()[0].lines} == {"-", "--"}


@pytest.mark.parametrize(
    ("model", "sizes", "finished", "marked"),
    [
        ("paper", [6, 7, 8, 9, 10], True, [84.7]),  # 80 and the paper's 4.7
        ("paper", [6, 7, 8, 9, 10], False, []),
        ("paper", [6], True, []),
        ("ours", [6, 7, 8, 9, 10], True, []),
    ],
)
def test_the_papers_lead_stands_above_its_own_finished_model(figures, tmp_path, model, sizes, finished, marked):
    common = {"model": model, "sizes": sizes}
    iha = run([0.7], mechanism="iha", num_pseudo_heads=8, init="one_hot", **common)
    plot_sweep([iha, run([0.8], mechanism="simplicial", finished=finished, **common)], tmp_path)
    (axes,) = figures["bars.png"].get_axes()
    levels = [line.get_ydata() for line in axes.lines if line.get_linestyle() == "--"]
    assert [round(float(level[0]), 6) for level in levels] == marked
