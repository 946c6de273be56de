"""Learning rates and groups, against their formulas; the update against a plain AdamW."""

import math

import pytest
import torch

from iha.train.build import build_model, model_config
from iha.train.optimise import build_optimiser, clip, gradient_norm, rate, set_rate
from iha.train.recipe import Data, Model, Optimiser, Recipe, Schedule


def tiny(attention="iha"):
    config = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_pseudo_heads": 2}  # fmt: skip
    recipe = Recipe(model=Model(attention=attention, config=config), data=Data(context=16))
    return build_model(recipe, model_config(recipe, 100, 0))


def test_the_papers_schedule():
    schedule = Schedule(steps=240_000, warmup=1000, final=0.01)
    assert rate(schedule, 0) == pytest.approx(1e-3)
    assert rate(schedule, 999) == rate(schedule, 1000) == 1.0
    assert rate(schedule, 239_999) * 8e-4 == pytest.approx(8e-6)
    middle = 1000 + (239_999 - 1000) / 4
    assert rate(schedule, round(middle)) == pytest.approx(0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi / 4)), abs=1e-5)
    assert all(rate(schedule, step) >= rate(schedule, step + 997) for step in range(1000, 239_000, 997))


def test_mixing_has_its_own_rate_and_no_decay():
    model = tiny()
    optimiser = build_optimiser(model, Optimiser(learning_rate=1e-3, mixing_learning_rate=5e-3, weight_decay=0.1))
    by_name = {group["name"]: group for group in optimiser.param_groups}
    assert {name: group["weight_decay"] for name, group in by_name.items()} == {
        "matrices": 0.1, "vectors": 0.0, "mixing": 0.0,
    }  # fmt: skip
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    mixing = {names[id(p)].split(".")[-1] for p in by_name["mixing"]["params"]}
    assert mixing == {"alpha_q", "alpha_k", "alpha_v", "collapse"}
    assert all(p.dim() == 1 for p in by_name["vectors"]["params"])
    total = sum(len(group["params"]) for group in optimiser.param_groups)
    assert total == len(list(model.parameters()))
    set_rate(optimiser, Schedule(steps=10, warmup=2), 0)
    assert by_name["matrices"]["lr"] == pytest.approx(5e-4)
    assert by_name["mixing"]["lr"] == pytest.approx(2.5e-3)


def test_norm_and_clipping_are_torchs_own():
    model = tiny()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    expected = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters()))
    norm = gradient_norm(model)
    assert float(norm) == pytest.approx(expected, rel=1e-5)
    clip(model, norm, 1.0)
    assert float(gradient_norm(model)) == pytest.approx(1.0, rel=1e-4)
