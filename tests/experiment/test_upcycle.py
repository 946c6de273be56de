"""The study of upcycling: conversions beside their original, on the same data, from the same loss."""

import shutil
from pathlib import Path

import pytest

from iha.experiment.compare import compare
from iha.experiment.run import run_all
from iha.experiment.upcycle import RETRIEVAL_NAME, VARIANTS, Upcycling, plan_upcycling
from iha.train.recipe import read_recipe

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"


def planned(tmp_path, **settings):
    return {run.variant: run for run in plan_upcycling(Upcycling(**settings), RECIPES, tmp_path)}


def test_all_runs_of_a_seed_see_the_same_data_for_as_long(tmp_path):
    runs = planned(tmp_path)
    assert set(runs) == set(VARIANTS)
    assert len({run.name for run in runs.values()}) == len(runs)
    for name, run in runs.items():
        assert run.after == "pretrain-global-s0"
        assert run.tokens == runs[""].tokens
        same = runs[RETRIEVAL_NAME if VARIANTS[name].retrieval else ""]
        assert run.recipe.data == same.recipe.data
        assert run.baseline == same.name


def test_what_a_variant_changes(tmp_path):
    runs = planned(tmp_path)
    rate = runs[""].recipe.optimiser.learning_rate
    assert runs["P=2, mixing rate x10"].recipe.optimiser.mixing_learning_rate == pytest.approx(10 * rate)
    assert runs["P=2, frozen"].recipe.optimiser.train == "mixing"
    assert runs["P=2"].recipe.optimiser.train == "all"
    assert runs["P=2, routed"].conversion == {"num_pseudo_heads": 2, "layers": None, "routed": True, "seed": 0}
    assert runs["P=2, last two layers"].conversion["layers"] == [-2, -1]
    assert runs[""].conversion is None
    weights = [run.recipe.data.sources[0].weight for run in (runs[""], runs[f"P=2, {RETRIEVAL_NAME}"])]
    assert weights[1] == pytest.approx(weights[0] / 5)
    pretrain = read_recipe(RECIPES / "pretrain.yaml")
    assert runs[""].recipe.data.sources == pretrain.data.sources
    assert runs[""].recipe.schedule.steps == round(pretrain.schedule.steps / 4)
    assert runs[""].learning_rate == pretrain.optimiser.learning_rate / 2


def test_originals_are_always_made(tmp_path):
    runs = planned(tmp_path, variants=(f"P=2, {RETRIEVAL_NAME}",))
    assert set(runs) == {"", RETRIEVAL_NAME, f"P=2, {RETRIEVAL_NAME}"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"variants": ("P=3",)}, "variants: 'P=3' is not one of"),
        ({"seeds": (-1,)}, "seeds must be"),
        ({"length": 0.0}, "length must be positive and finite, got 0.0"),
    ],
)
def test_bad_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Upcycling(**wrong)


@pytest.mark.slow
def test_conversions_are_trained_beside_their_original(little, tmp_path, monkeypatch):
    # A copy: other tests count what is in the shared one.
    little_runs, little_records = (
        shutil.copytree(place, tmp_path / place.name) for place in (little.runs, little.records)
    )
    monkeypatch.setattr("iha.experiment.run.PUZZLES", 2)
    changes = (
        "data.context=256", "data.batch=2", "data.validation=0.1", "validation.sequences=2", "parallel.micro_batch=2",
        "data.sources=[{name: text, kind: generated, generator: hops, count: 60}]", "logging.every=1",
        "validation.every=1", "optimiser.learning_rate=1e-9",
    )  # fmt: skip
    variants = ("P=2, last two layers", "P=2, routed, frozen")
    runs = plan_upcycling(Upcycling(variants, length=0.002, changes=changes), RECIPES, little_runs)
    records = run_all(runs, little_runs, little_records, command="iha experiment upcycle")
    rows = {row["variant"]: row for row in compare(records, "upcycle")["rows"]}
    for variant in variants:
        # With a learning rate of next to nothing, exactness at step 0 shows in the loss after two steps.
        assert abs(rows[variant]["paired"]["mean"]) < 1e-5
        assert rows[variant]["parameters"] > rows[""]["parameters"]
        assert rows[variant]["flops_per_token"] > rows[""]["flops_per_token"]
