"""Grids of runs, and the scales by name."""

from dataclasses import replace

import pytest

from iha.synthetic.config import SCALES, RunConfig, Scale, choose_scale, grid
from iha.synthetic.flops import forward_flops
from iha.synthetic.sweep import check
from iha.synthetic.trainer import build_model


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


def test_optimisers_and_weight_decays_are_in_the_name() -> None:
    scale = choose_scale("quick", optimisers=("adamw", "sgd"), weight_decays=(0.0, 0.1))
    runs = grid("binary", ("mha",), scale)
    assert len({run.name for run in runs}) == len(runs) == 4
    assert [("sgd" in run.name, "wd0.1" in run.name) for run in runs] == [
        (run.optimiser == "sgd", run.weight_decay == 0.1) for run in runs
    ]
    assert {RunConfig.from_json(run.as_json()) for run in runs} == set(runs)
    with pytest.raises(ValueError, match="optimiser must be one of adamw, adam, sgd; got 'lion'"):
        grid("binary", ("mha",), choose_scale("quick", optimisers=("lion",)))


def test_pseudo_keys_go_with_pseudo_heads_one_by_one() -> None:
    scale = choose_scale("quick", heads=(4,))
    runs = grid("binary", ("iha", "paired_heads"), scale, pseudo_heads=(1, 4, 2), pseudo_keys=(4, 1, 2))
    numbers = [(run.num_pseudo_heads, run.num_pseudo_keys) for run in runs if run.mechanism == "iha"]
    assert numbers == [(1, 4), (4, 1), (2, None)]
    assert [run.name.split("-")[3] for run in runs] == ["P1x4", "P4x1", "P2", "w64"]
    flops = {forward_flops(build_model(run), 6) for run in runs[:2]}
    assert len(flops) == 2  # attention costs the same, mixing does not: alpha_q, or alpha_k and alpha_v
    assert RunConfig.from_json(runs[0].as_json()) == runs[0]
    check(runs)
    with pytest.raises(ValueError, match=r"one number for each of pseudo_heads \(1, 2\), got \(4,\)"):
        grid("binary", ("iha",), scale, pseudo_heads=(1, 2), pseudo_keys=(4,))
    with pytest.raises(ValueError, match="num_pseudo_keys must be at least 1, got 0"):
        grid("binary", ("iha",), scale, pseudo_heads=(1,), pseudo_keys=(0,))


def test_windows_are_of_2_simplicial_attention_alone() -> None:
    scale = choose_scale("quick", heads=(2,))
    runs = grid("binary", ("mha", "simplicial"), scale, windows=(None, 4))
    assert [(run.mechanism, run.window) for run in runs] == [
        ("multihead", None),
        ("simplicial", None),
        ("simplicial", 4),
    ]
    assert "simplicial-H2-win4-w64" in runs[2].name
    assert build_model(runs[2]).attention.windows == (None, 4)
    check(runs)
    with pytest.raises(ValueError, match="got 4 with multihead"):
        replace(runs[0], window=4).check()
    with pytest.raises(ValueError, match="at least 1; got 0 with simplicial"):
        grid("binary", ("simplicial",), scale, windows=(0,))


def test_weights_and_offsets_are_in_the_name() -> None:
    scale = choose_scale("quick", weights=("torch", "xavier"))
    runs = grid("binary", ("mha", "simplicial"), scale, offsets=("none", "published"))
    assert [(run.weights, run.mechanism, run.offsets) for run in runs] == [
        (weights, mechanism, offsets)
        for weights in ("torch", "xavier")
        for mechanism, offsets in (("multihead", "none"), ("simplicial", "none"), ("simplicial", "published"))
    ]
    assert len({run.name for run in runs}) == 6
    assert runs[-1].name == "binary-simplicial-H2-offsets_published-w64-1d-xavier-lr0.001-s0"
    check(runs)
    with pytest.raises(ValueError, match="weights must be one of torch, normal, xavier; got 'zeros'"):
        replace(runs[0], weights="zeros").check()
    with pytest.raises(ValueError, match="offsets must be one of none, published; got 'meta'"):
        replace(runs[1], offsets="meta").check()
    with pytest.raises(ValueError, match="offsets='published' are those of 2-simplicial attention, not of multihead"):
        replace(runs[0], offsets="published").check()


def test_interleaved_heads_that_start_as_paired_heads() -> None:
    scale = choose_scale("quick", heads=(4,))
    (run,) = grid("binary", ("iha",), scale, pseudo_heads=(2,), inits=("paired_heads",))
    attention = build_model(run).attention
    assert (attention.num_mixed_heads, attention.collapse_kind) == (2, "full")
    with pytest.raises(ValueError, match="4 heads, 3 pseudo-queries"):
        grid("binary", ("iha",), scale, pseudo_heads=(3,), inits=("paired_heads",))
