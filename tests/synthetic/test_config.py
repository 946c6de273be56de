"""Grids of runs, and the scales by name."""

import pytest

from iha.synthetic.config import SCALES, Scale, choose_scale, grid
from iha.synthetic.sweep import check


def test_the_paper_scale_is_the_paper() -> None:
    runs = grid("binary", ("mha", "iha", "simplicial"), SCALES["paper"])
    assert len(runs) == 3 * 2 * 3
    for run in runs:
        assert run.sizes == (6, 7, 8, 9, 10)
        assert (run.train_examples, run.validation_examples, run.test_examples) == (40_000, 5_000, 5_000)
        assert (run.num_heads, run.patience, run.positions) == (8, 10, "1d")
        assert run.num_pseudo_heads == (8 if run.mechanism == "iha" else 1)
    assert {run.learning_rate for run in runs} == {1e-3, 1e-4}
    assert {run.sizes for run in grid("ternary", ("mha",), SCALES["paper"])} == {(5, 6, 7, 8)}
    check(runs)


def test_grid_multiplies_only_what_applies() -> None:
    scale = Scale(seeds=(0,), learning_rates=(1e-3,), heads=(2, 4))
    runs = grid("binary", ("mha", "iha"), scale, inits=("one_hot", "random"), pseudo_heads=(1, 8))
    assert sum(run.mechanism == "multihead" for run in runs) == 2
    assert sum(run.mechanism == "iha" for run in runs) == 2 * 2 * 2
    assert {run.num_pseudo_heads for run in grid("binary", ("iha",), scale)} == {2, 4}  # P = H
    with pytest.raises(ValueError, match="no size of task 'binary' is at most 3"):
        grid("binary", ("mha",), choose_scale("quick", max_size=3))
    assert grid("binary", ("mha",), choose_scale("quick", sizes=(3, 12)))[0].sizes == (3, 12)
    assert grid("binary", ("mha",), choose_scale("quick", max_size=8))[0].sizes == (6, 7, 8)


def test_a_grid_crosses_every_choice_that_the_paper_leaves_open() -> None:
    scale = choose_scale("quick", widths=(16, 32), batch_sizes=(16, 64), heads=(1, 2), seeds=(0, 1))
    runs = grid("binary", ("mha", "iha"), scale, inits=("one_hot", "random"), positions=("1d", "2d"))
    assert len(runs) == len(set(runs)) == len({run.name for run in runs}) == 2 * 2 * 2 * 2 * 2 * (1 + 2)
    assert {(run.width, run.batch_size) for run in runs} == {(16, 16), (16, 64), (32, 16), (32, 64)}
    assert all(run.num_pseudo_heads == (run.num_heads if run.mechanism == "iha" else 1) for run in runs)
    check(runs)
