"""Recipes: typed, checked, overridden; every error names file, key and reason."""

import re
from pathlib import Path

import pytest

from iha.train.recipe import Recipe, check_continues, read_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


def written(tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("attention", ["iha", "global", "global_local", "talking_heads", "differential"])
def test_every_recipe_reads_for_all_five_mechanisms(path, attention):
    recipe = read_recipe(path, [f"model.attention={attention}"])
    assert recipe.model.attention == attention
    assert recipe.name == path.stem


def test_overrides_reach_every_depth(tmp_path):
    path = written(tmp_path, "data: {sources: [{name: a, kind: stdlib}, {name: b, kind: text, paths: [x]}]}")
    recipe = read_recipe(
        path, ["schedule.steps=7", "schedule.warmup=1", "optimiser.learning_rate=8e-4", "data.sources.1.weight=2",
               "parallel.shards=null", "model.config.num_pseudo_heads=4", "parallel.compile=true"],
    )  # fmt: skip
    assert (recipe.schedule.steps, recipe.optimiser.learning_rate) == (7, 8e-4)
    assert [source.weight for source in recipe.data.sources] == [1.0, 2.0]
    assert recipe.parallel.shards is None
    assert recipe.parallel.compile is True
    assert recipe.model.config == {"num_pseudo_heads": 4}


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("optimizer: {}", [], "r.yaml: optimizer: no such key; there are name, seed, model"),
        ("schedule: {step: 3}", [], "r.yaml: schedule.step: no such key"),
        ("schedule: {steps: many}", [], "r.yaml: schedule.steps: must be int, got 'many'"),
        ("schedule: {steps: true}", [], "r.yaml: schedule.steps: must be int, got True"),
        ("schedule: {steps: 10, warmup: 10}", [], "r.yaml: schedule: warmup must be fewer than steps: 10, 10"),
        ("model: {attention: lstm}", [], "r.yaml: model.attention: must be one of iha, global"),
        ("model: {config: {max_position_embeddings: 4}}", [], "config.max_position_embeddings is set by data.context"),
        ("data: {sources: [{name: a, kind: text}]}", [], "r.yaml: data.sources.0: kind 'text' needs paths"),
        ("data: {sources: [{kind: stdlib}]}", [], "r.yaml: data.sources.0.name: must be given"),
        ("data: {sources: 3}", [], "r.yaml: data.sources: must be a list, got 3"),
        ("data: {tokenizer: {kind: file}}", [], "r.yaml: data.tokenizer: kind 'file' needs path"),
        ("data: {validation: 1.5}", [], "validation is a share"),
        ("data: {batch: 0}", [], "r.yaml: data: batch must be positive, got 0"),
        ("- a", [], "a recipe is a mapping"),
        ("a: [", [], "r.yaml: not YAML"),
        ("", ["steps"], "an override is key.path=value, got 'steps'"),
        ("seed: 1", ["seed.x=1"], "override 'seed.x=1': seed is a value, not a section"),
        ("data: {sources: [{name: a, kind: stdlib}]}", ["data.sources.4.weight=1"], "no index of a list of 1"),
    ],
)
def test_errors_name_file_key_and_reason(tmp_path, text, overrides, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_recipe(written(tmp_path, text), overrides)


def test_yaml_builds_no_objects(tmp_path):
    with pytest.raises(ValueError, match="not YAML"):
        read_recipe(written(tmp_path, "name: !!python/object/apply:os.getcwd []"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none.yaml: cannot be read"):
        read_recipe(tmp_path / "none.yaml")


def test_a_run_goes_on_only_with_what_does_not_change_it(tmp_path):
    path = written(tmp_path, "")
    before = read_recipe(path).as_dict()
    check_continues(before, read_recipe(path, ["parallel.micro_batch=2", "checkpoint.every=3"]), "here")
    with pytest.raises(ValueError, match=r"model\.attention was 'iha' and is 'global'"):
        check_continues(before, read_recipe(path, ["model.attention=global"]), "here")
    del before["optimiser"]["train"]  # a run of an older version, which did not have this key
    check_continues(before, read_recipe(path), "here")
    with pytest.raises(ValueError, match=r"optimiser.train was 'all' and is 'mixing'"):
        check_continues(before, read_recipe(path, ["optimiser.train=mixing"]), "here")


def test_defaults_are_a_whole_recipe():
    assert Recipe().as_dict()["data"]["sources"][0]["kind"] == "stdlib"
