"""The whole experiment in little: train, export, adapt, tune, record; and it goes on where it was."""

from pathlib import Path

import pytest

from iha.experiment.compare import compare
from iha.experiment.plan import Settings, plan
from iha.experiment.run import run_all

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"
LITTLE = (
    "data.tokenizer={kind: bytes}", "data.context=256", "data.batch=2", "data.validation=0.1",
    "data.sources=[{name: text, kind: generated, generator: hops, count: 60}]", "validation.sequences=2",
    "parallel.micro_batch=2", "logging.every=1", "validation.every=1",
)  # fmt: skip


@pytest.mark.slow
def test_three_phases_of_two_mechanisms(tmp_path, monkeypatch):
    monkeypatch.setattr("iha.experiment.run.PUZZLES", 2)
    settings = Settings("quick", ("global", "iha"), length=0.002, changes=LITTLE)
    runs = plan(settings, RECIPES, tmp_path / "runs")
    records = run_all(runs, tmp_path / "runs", tmp_path / "records", command="iha experiment")
    assert [record.config["name"] for record in records] == [run.name for run in runs]
    for phase in ("pretrain", "adapt", "tune"):
        rows = compare(records, phase)["rows"]
        assert [row["label"] for row in rows] == ["Global", "IHA"]
        assert all(row["loss"]["text"]["mean"] > 0 for row in rows)
    again = run_all(runs, tmp_path / "runs", tmp_path / "records", command="another")
    assert again == records


def test_a_phase_without_its_start_is_refused(tmp_path):
    (run,) = plan(Settings("quick", ("iha",), phases=("adapt",)), RECIPES, tmp_path / "runs")
    with pytest.raises(ValueError, match="starts from pretrain-iha-s0, which has not been made"):
        run_all([run], tmp_path / "runs", tmp_path / "records", command="iha")
