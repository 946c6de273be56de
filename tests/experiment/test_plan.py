"""The plan: every run once, one seed before the next, phases in order, and the same data for all mechanisms."""

from pathlib import Path

import pytest

from iha.experiment.plan import ABLATIONS, MECHANISMS, Settings, plan
from iha.train.build import model_config

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"


def test_one_seed_of_everything_before_the_second(tmp_path):
    runs = plan(Settings(seeds=(0, 1)), RECIPES, tmp_path)
    assert len({run.name for run in runs}) == len(runs) == 2 * 3 * len(MECHANISMS)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)


def test_a_run_comes_after_the_one_it_starts_from(tmp_path):
    names = [run.name for run in plan(Settings(), RECIPES, tmp_path)]
    for run in plan(Settings(), RECIPES, tmp_path):
        assert run.after is None or names.index(run.after) < names.index(run.name)


def test_mechanisms_differ_in_nothing_but_attention(tmp_path):
    runs = [run for run in plan(Settings(), RECIPES, tmp_path) if run.phase == "pretrain"]
    recipes = [run.recipe.as_dict() for run in runs]
    for recipe in recipes:
        del recipe["name"], recipe["model"]["attention"]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert {run.recipe.model.attention for run in runs} == set(MECHANISMS)


@pytest.mark.parametrize("variant", ABLATIONS)
def test_every_ablation_is_a_valid_model(tmp_path, variant):
    (run,) = plan(Settings(mechanisms=(), variants=(variant,), phases=("pretrain",)), RECIPES, tmp_path)
    plain = plan(Settings(mechanisms=("iha",), phases=("pretrain",)), RECIPES, tmp_path)[0]
    changed = model_config(run.recipe, 1024, 0).to_dict() != model_config(plain.recipe, 1024, 0).to_dict()
    assert changed or run.recipe.optimiser != plain.recipe.optimiser


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": "huge"}, "size: 'huge' is not one of quick"),
        ({"mechanisms": ("mha",)}, "mechanisms: 'mha' is not one of global"),
        ({"seeds": ()}, "seeds must be"),
        ({"length": 0}, "length must be positive and finite, got 0"),
    ],
)
def test_bad_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)
