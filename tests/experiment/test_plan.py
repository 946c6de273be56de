"""The plan: every run once, one seed before the next, phases in order, and the same data for all mechanisms."""

from pathlib import Path

import pytest
import torch

from iha.experiment.compare import is_swept
from iha.experiment.plan import Settings, plan
from iha.experiment.variants import ABLATIONS, MECHANISMS
from iha.models.modeling import IHAForCausalLM
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
        recipe["model"]["config"].pop("window", None)  # of Global+Local
    assert all(recipe == recipes[0] for recipe in recipes)
    assert {run.recipe.model.attention for run in runs} == set(MECHANISMS)


def test_windows_are_those_of_the_paper_to_scale(tmp_path):
    """512 of 8192 tokens for Global+Local, N/(2 P²) for IHA; every fifth layer is global."""
    for run in plan(Settings(phases=("pretrain",), changes=("data.context=512",)), RECIPES, tmp_path):
        windows = [layer.window for layer in model_config(run.recipe, 1024, 0).layers]
        wanted = {"global_local": 32, "iha": 64}.get(run.mechanism)
        assert windows == [wanted] * 4 + [None]


def test_the_medium_size_has_a_longer_context_and_windows_that_follow_it(tmp_path):
    variants = ("P=1 in the window of P=2", "P=4", "P=1 in the window of P=4", "window doubled")
    runs = plan(Settings(size="medium", variants=variants), RECIPES, tmp_path)
    assert {run.phase: run.recipe.data.context for run in runs} == {"pretrain": 512, "adapt": 2048, "tune": 1024}
    assert {run.recipe.data.batch * run.recipe.data.context for run in runs} == {2048}
    pretrained = {run.label: run.recipe for run in runs if run.phase == "pretrain"}
    windows = {label: model_config(recipe, 1024, 0).layers[0].window for label, recipe in pretrained.items()}
    assert windows["Global+Local"] == 512 // 16
    assert windows["IHA"] == windows["IHA, P=1 in the window of P=2"] == 512 // 8
    assert windows["IHA, P=4"] == windows["IHA, P=1 in the window of P=4"] == 512 // 32
    assert windows["IHA, window doubled"] == 2 * windows["IHA"]


def test_the_mixing_rate_is_a_multiple_of_the_tuned_rate(tmp_path):
    settings = Settings(mechanisms=(), variants=("mixing rate x10",), phases=("pretrain",), rates=(("iha", 7e-3),))
    (run,) = plan(settings, RECIPES, tmp_path)
    assert run.recipe.optimiser.mixing_learning_rate == pytest.approx(7e-2)


def test_tuned_rates_are_those_of_pre_training(tmp_path):
    settings = Settings(rates=(("iha", 7e-3),), phases=("pretrain", "adapt"), variants=("P=4",))
    rates = {(run.phase, run.label): run.learning_rate for run in plan(settings, RECIPES, tmp_path)}
    assert rates["pretrain", "IHA"] == rates["pretrain", "IHA, P=4"] == 7e-3
    assert rates["pretrain", "Global"] != 7e-3
    assert rates["adapt", "IHA"] == rates["adapt", "Global"]


def test_a_sweep_has_names_of_its_own(tmp_path):
    settings = Settings(mechanisms=("iha",), learning_rates=(1e-5, 2e-3), phases=("pretrain",))
    names = [run.name for run in plan(settings, RECIPES, tmp_path)]
    assert names == ["pretrain-iha-lr1e-05-s0", "pretrain-iha-lr0.002-s0"]
    assert all(is_swept(name) for name in names)
    assert not any(is_swept(run.name) for run in plan(Settings(variants=tuple(ABLATIONS)), RECIPES, tmp_path))


@pytest.mark.parametrize(("size", "millions"), [("small", 0.38), ("medium", 1.25)])
def test_sizes_that_two_cores_train_have_the_parameters_that_the_docs_say(tmp_path, size, millions):
    (run,) = plan(Settings(size=size, mechanisms=("global",), phases=("pretrain",)), RECIPES, tmp_path)
    with torch.device("meta"):
        model = IHAForCausalLM(model_config(run.recipe, 1024, 0))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(1e6 * millions, rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": "huge"}, "size: 'huge' is not one of quick"),
        ({"mechanisms": ("mha",)}, "mechanisms: 'mha' is not one of global"),
        ({"rates": (("mha", 1e-3),)}, "rates: 'mha' is not one of global"),
        ({"seeds": ()}, "seeds must be"),
        ({"length": 0}, "length must be positive and finite, got 0"),
    ],
)
def test_bad_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)


def test_the_users_changes_have_the_last_word_before_an_ablation(tmp_path):
    changes = ("model.config.hidden_size=96", "model.config.num_pseudo_heads=3")
    main, ablated = plan(
        Settings(mechanisms=("iha",), variants=("P=4",), phases=("pretrain",), changes=changes), RECIPES, tmp_path
    )
    assert (main.recipe.model.config["hidden_size"], main.recipe.model.config["num_pseudo_heads"]) == (96, 3)
    assert (ablated.recipe.model.config["hidden_size"], ablated.recipe.model.config["num_pseudo_heads"]) == (96, 4)
