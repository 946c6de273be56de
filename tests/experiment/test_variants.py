"""Ablations: each is a valid model that differs from IHA, and those of equal cost cost the same."""

from pathlib import Path

import pytest

from iha.experiment.plan import Settings, plan
from iha.experiment.variants import ABLATIONS, CONTROLS, GROWTHS
from iha.train.build import model_config
from iha.train.growth import check_growth, cost, numbers_of

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"


@pytest.mark.parametrize("variant", ABLATIONS)
def test_every_ablation_is_a_valid_model(tmp_path, variant):
    (run,) = plan(Settings(mechanisms=(), variants=(variant,), phases=("pretrain",)), RECIPES, tmp_path)
    plain = plan(Settings(mechanisms=("iha",), phases=("pretrain",)), RECIPES, tmp_path)[0]
    changed = model_config(run.recipe, 1024, 0).to_dict() != model_config(plain.recipe, 1024, 0).to_dict()
    assert changed or run.recipe.optimiser != plain.recipe.optimiser


@pytest.mark.parametrize("variant", GROWTHS)
def test_what_grows_begins_with_one_pseudo_head_and_ends_within_the_cost_of_uniform_ones(tmp_path, variant):
    P, count = GROWTHS[variant]
    names = (variant, f"P={P} token index")
    grows, uniform = plan(Settings(mechanisms=(), variants=names, phases=("pretrain",)), RECIPES, tmp_path)
    config, other = (model_config(run.recipe, 1024, 0) for run in (grows, uniform))
    assert grows.baseline == uniform.name
    assert numbers_of(config.layers) == dict.fromkeys(range(4), (1, 1))
    assert numbers_of(other.layers) == dict.fromkeys(range(4), (P, P))
    assert [layer.window for layer in config.layers] == [layer.window for layer in other.layers]
    check_growth(grows.recipe, config, world=1)
    growth, context = grows.recipe.growth, grows.recipe.data.context
    assert growth.every == 50
    if count is None:
        assert growth.until == P
        assert growth.count >= 8  # all places at once
        assert growth.flops is None
    else:
        assert growth.flops == cost(other, numbers_of(other.layers), context)
        doublings = 8 * (P.bit_length() - 1)  # of queries and of keys of four layers, if they end uniform
        assert doublings / count * growth.every < grows.recipe.schedule.steps / 2


@pytest.mark.parametrize(("variant", "numbers"), [("P=1x4 token index", (1, 4)), ("P=4x1 token index", (4, 1))])
def test_unequal_numbers_have_the_window_and_the_pairs_of_two_by_two(tmp_path, variant, numbers):
    names = (variant, "P=2 token index")
    runs = plan(Settings(mechanisms=(), variants=names, phases=("pretrain",)), RECIPES, tmp_path)
    unequal, square = (model_config(run.recipe, 1024, 0) for run in runs)
    assert [layer.window for layer in unequal.layers] == [layer.window for layer in square.layers] == [32] * 4 + [None]
    assert numbers_of(unequal.layers) == dict.fromkeys(range(4), numbers)


@pytest.mark.parametrize(("variant", "control"), CONTROLS.items())
def test_a_control_has_one_pseudo_head_in_the_same_window(tmp_path, variant, control):
    settings = Settings(mechanisms=("iha",), variants=tuple(filter(None, (variant, control))), phases=("pretrain",))
    runs = {run.variant: run for run in plan(settings, RECIPES, tmp_path)}
    config, of_control = (model_config(runs[name].recipe, 1024, 0) for name in (variant, control))
    assert numbers_of(of_control.layers) == dict.fromkeys(range(4), (1, 1))
    assert [layer.window for layer in config.layers] == [layer.window for layer in of_control.layers]
