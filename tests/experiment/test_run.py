"""The whole experiment in little: train, export, adapt, tune, record; and it goes on where it was."""

from pathlib import Path

import pytest

from iha.experiment.compare import compare
from iha.experiment.inside import initial_weights
from iha.experiment.plan import Settings, plan
from iha.experiment.run import run_all
from iha.experiment.speed import measure_speed
from iha.models.configuration import IHAConfig
from iha.train.build import model_config
from iha.train.flops import training_flops

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"


@pytest.mark.slow
def test_three_phases_of_two_mechanisms(little):
    assert [record.config["name"] for record in little.made] == [run.name for run in little.plan]
    for phase in ("pretrain", "adapt", "tune"):
        rows = compare(little.made, phase)["rows"]
        assert [row["label"] for row in rows] == ["Global", "IHA"]
        assert all(row["loss"]["text"]["mean"] > 0 for row in rows)
    curves = little.made[0].results
    assert [point["tokens"] for point in curves["validation"]] == [512, 1024]  # two steps of 2 x 256 tokens
    assert set(curves["probe"][0]) > {"tokens", "pairs", "arithmetic"}
    assert run_all(little.plan, little.runs, little.records, command="another") == little.made


def test_a_phase_without_its_start_is_refused(tmp_path):
    (run,) = plan(Settings("quick", ("iha",), phases=("adapt",)), RECIPES, tmp_path / "runs")
    with pytest.raises(ValueError, match="starts from pretrain-iha-s0, which has not been made"):
        run_all([run], tmp_path / "runs", tmp_path / "records", command="iha")


def test_a_run_that_grows_costs_the_mean_of_its_steps(tmp_path, monkeypatch):
    """Four steps: the first with one pseudo-head, the others with two in every IHA layer."""
    monkeypatch.setattr("iha.experiment.run.PUZZLES", 2)
    little = (
        "data.tokenizer={kind: bytes}", "data.batch=2", "data.validation=0.1", "validation.sequences=2",
        "data.sources=[{name: text, kind: generated, generator: hops, count: 60}]", "parallel.micro_batch=2",
        "logging.every=1",
    )  # fmt: skip
    settings = Settings("quick", (), ("P=2 grown everywhere",), ("pretrain",), length=0.004, changes=little)
    (run,) = plan(settings, RECIPES, tmp_path / "runs")
    (record,) = run_all([run], tmp_path / "runs", tmp_path / "records", command="iha")
    grown = record.results["grown"]
    assert {growth["step"] for growth in grown} == {1}
    assert sorted((growth["layer"], growth["what"]) for growth in grown) == [
        (layer, what) for layer in range(4) for what in ("keys", "queries")
    ]
    context = run.recipe.data.context
    after = IHAConfig.from_pretrained(tmp_path / "runs" / run.name / "export")
    before = model_config(run.recipe, after.vocab_size, None)
    assert [spec.per_token for spec in after.layers] == [(2, 2)] * 4 + [(1, 1)]
    mean = (training_flops(before, context) + 3 * training_flops(after, context)) / 4 / context
    assert record.results["flops_per_token"] == pytest.approx(mean, rel=1e-12)
    assert initial_weights(run.recipe, tmp_path / "runs" / run.name / "export") is None  # of another size
    with pytest.raises(ValueError, match="no record of a finished pre-training run"):  # whose speed would be one number
        measure_speed(tmp_path / "records", tmp_path / "runs", rounds=1, threads=1, command="iha")
