"""The study of allocation: two models of the same cost, from the same weights, on the same data."""

import json
from pathlib import Path

import pytest
import torch

from iha.experiment.allocated import VARIANTS, Allocation, plan_allocation
from iha.experiment.compare import compare, compare_all
from iha.experiment.plan import Settings, plan
from iha.experiment.run import run_all
from iha.models import IHAConfig, IHAForCausalLM
from iha.records import read_record
from iha.train.growth import cost, numbers_of
from iha.train.recipe import read_recipe

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"
LITTLE = (
    "data.context=256", "data.batch=2", "data.validation=0.1", "validation.sequences=2", "parallel.micro_batch=2",
    "data.sources=[{name: text, kind: generated, generator: hops, count: 60}]", "logging.every=1", "validation.every=1",
)  # fmt: skip


def test_all_runs_of_a_seed_see_the_same_data_for_as_long(tmp_path) -> None:
    runs = plan_allocation(Allocation(seeds=(0, 1)), RECIPES, tmp_path)
    assert [run.variant for run in runs] == [*VARIANTS, *VARIANTS]
    assert len({run.name for run in runs}) == len(runs)
    pretrain = read_recipe(RECIPES / "pretrain.yaml")
    for run in runs:
        first = next(other for other in runs if other.seed == run.seed)
        assert run.recipe.data == first.recipe.data
        assert run.recipe.schedule == first.recipe.schedule
        assert run.recipe.schedule.steps == round(pretrain.schedule.steps / 4)
        assert run.after == f"pretrain-iha-p4-token-index-s{run.seed}"
    source, uniform, allocated = runs[:3]
    assert source.conversion is None
    assert allocated.conversion == {"choice": "allocated", "share": 0.5, "first_batch": pretrain.schedule.steps}
    assert (allocated.baseline, uniform.baseline) == (uniform.name, source.name)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": 1.0}, "share must be between 0 and 1, got 1.0"),
        ({"seeds": ()}, "seeds must be"),
        ({"length": 0.0}, "length must be positive and finite, got 0.0"),
    ],
)
def test_bad_settings_are_refused(wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        Allocation(**wrong)


def test_both_are_within_the_share_and_trained_beside_the_source(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("iha.experiment.run.PUZZLES", 2)
    monkeypatch.setattr("iha.experiment.allocated.BATCHES", 1)
    monkeypatch.setattr("iha.experiment.allocated.WINDOWS", (1.0,))
    two_layers = ("model.config.num_hidden_layers=2", "model.config.global_every=null")
    changes = ("data.tokenizer={kind: bytes}", *LITTLE, *two_layers)
    before = Settings("quick", (), ("P=4 token index",), ("pretrain",), length=0.002, changes=changes)
    runs, records = tmp_path / "runs", tmp_path / "records"
    run_all(plan(before, RECIPES, runs), runs, records, command="iha")
    changes = (*LITTLE, "optimiser.learning_rate=1e-9")
    planned = plan_allocation(Allocation(share=0.3, length=0.002, changes=changes), RECIPES, runs)
    made = run_all(planned, runs, records, command="iha")
    source = IHAConfig.from_pretrained(runs / "pretrain-iha-p4-token-index-s0" / "export")
    whole = cost(source, numbers_of(source.layers), 256)
    for run in planned[1:]:
        start = IHAForCausalLM.from_pretrained(runs / run.name / "start")
        assert cost(start.config, numbers_of(start.config.layers), 256) <= 0.3 * whole
        # its schedule is kept, layer by layer, and with a rate of next to nothing so are its weights
        after = IHAForCausalLM.from_pretrained(runs / run.name / "export")
        assert after.config.layer_schedule == start.config.layer_schedule
        torch.testing.assert_close(after.state_dict(), start.state_dict(), rtol=0, atol=1e-6)
    layers = {
        run.variant: json.loads((runs / run.name / "config.json").read_text())["layer_schedule"] for run in planned
    }
    assert layers["uniform"][0] == layers["uniform"][1]
    record = read_record(runs / planned[2].name / "start" / "allocation.json", "allocation")
    assert record.results["allocated"]["predicted"] <= record.results["uniform"]["predicted"] + 1e-6
    rows = {row["variant"]: row for row in compare(made, "allocate")["rows"]}
    assert rows["allocated"]["flops_per_token"] < rows[""]["flops_per_token"]
    difference = rows["allocated"]["loss"]["text"]["mean"] - rows["uniform"]["loss"]["text"]["mean"]
    assert rows["allocated"]["paired"]["mean"] == pytest.approx(difference)
    assert "allocate" in compare_all(made)
