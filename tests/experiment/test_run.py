"""The whole experiment in little: train, export, adapt, tune, record; and it goes on where it was."""

from pathlib import Path

import pytest

from iha.experiment.compare import compare
from iha.experiment.plan import Settings, plan
from iha.experiment.run import run_all

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
