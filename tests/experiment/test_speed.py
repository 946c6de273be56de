"""Training speed in turns: one side per mechanism, every number positive, and the comparison takes it."""

import shutil

import pytest

from iha.experiment.compare import SPEED, SPEED_KIND, read_runs
from iha.experiment.speed import measure_speed
from iha.records import Record, write_record
from scale_model_records import run_record


@pytest.fixture
def records(little, tmp_path):
    return shutil.copytree(little.records, tmp_path / "records")


def test_every_mechanism_takes_its_turn(little, records):
    record = measure_speed(records, little.runs, rounds=3, threads=1, command="iha experiment speed")
    speeds = record.results["tokens_per_second"]
    assert list(speeds) == ["Global", "IHA"]
    assert min(speeds.values()) > 0
    assert record.results["reference"] == "Global"
    assert record.results["ratios"]["Global"] == [1.0] * 3
    assert len(record.results["ratios"]["IHA"]) == 3
    assert record.results["quiet"]["load_before"] is not None


def test_the_comparison_takes_measured_speeds_of_pre_training(tmp_path):
    runs = [run_record("global", 0, (2.0, 1.0)), run_record("iha", 0, (2.0, 1.0))]
    for run in runs:
        write_record(tmp_path / f"{run.config['name']}.json", run)
    before = {run.config["label"]: run.results["tokens_per_second"] for run in read_runs(tmp_path)}
    record = Record.new(SPEED_KIND, command="iha", config={}).finished({"tokens_per_second": {"iha": 123.0}})
    write_record(tmp_path / SPEED, record)
    after = {run.config["label"]: run.results["tokens_per_second"] for run in read_runs(tmp_path)}
    assert after["iha"]["median"] == 123.0
    assert after["global"] == before["global"]


def test_what_cannot_be_measured_is_refused(little, records, tmp_path):
    options = {"threads": 1, "command": "iha"}
    with pytest.raises(ValueError, match="rounds and threads must be at least 1, got 0 and 1"):
        measure_speed(records, little.runs, rounds=0, **options)
    with pytest.raises(ValueError, match="no record of a finished pre-training run"):
        measure_speed(tmp_path, little.runs, rounds=1, **options)
