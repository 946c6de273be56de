"""The paper's scale: commands that exist, and launched exactly where the GPUs are."""

import sys
from pathlib import Path

import pytest

from iha.experiment.variants import LABELS
from iha.records import read_record
from iha.reproduce import paper
from iha.train.parallel import check_layout
from iha.train.recipe import read_recipe

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("gpus", [1, 8, 128])
def test_every_command_is_one_that_exists(gpus, tmp_path, parsed):
    stages = paper.training_stages(gpus, "h200", tmp_path)
    assert len(stages) == len(LABELS) * 3 * 3
    for stage in stages:
        given = parsed(stage.arguments)
        if stage.arguments[0] == "train":
            recipe = read_recipe(given["recipe"], given["overrides"])
            check_layout(recipe, stage.processes * stage.nodes)
            assert stage.minutes > 0


def test_a_phase_starts_from_the_export_of_the_one_before(tmp_path, parsed):
    stages = {stage.name: stage for stage in paper.training_stages(8, "h200", tmp_path)}
    exported = {parsed(s.arguments)["out"] for s in stages.values() if s.arguments[0] == "export"}
    starts = [parsed(s.arguments)["init_from"] for s in stages.values() if s.arguments[0] == "train"]
    assert starts.count(None) == len(LABELS)
    assert {Path(start) for start in starts if start} < exported
    names = list(stages)
    assert all(names.index(need) < names.index(stage.name) for stage in stages.values() for need in stage.needs)


def test_commands_as_typed():
    first = paper.training_stages(128, "h200", Path("out"))[0]
    assert first.command == (
        "torchrun --nnodes 16 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HEAD_NODE:29500 -m iha train "
        "recipes/pretrain-2.4b.yaml model.attention=global --out out/train/pretrain-2.4b-global"
    )
    with pytest.raises(ValueError, match="runs on 16 nodes"):
        _ = first.argv
    assert paper.training_stages(1, "h200", Path("out"))[0].command.startswith("iha train")


class Launched:
    """In place of processes: what would have been started, and that it went well."""

    def __init__(self, started):
        self.started, self.returncode = started, 0

    def __call__(self, argv, **_):
        self.started.append(argv)
        return self

    def poll(self):
        return 0


@pytest.mark.parametrize(("there", "runs"), [(0, False), (4, False), (8, True)])
def test_it_launches_exactly_the_commands_where_the_gpus_are(there, runs, tmp_path, monkeypatch):
    started: list[list[str]] = []
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    monkeypatch.setattr("iha.reproduce.run.Popen", Launched(started))
    record, outcomes = paper.reproduce_paper(8, "h200", tmp_path, command="iha reproduce --scale paper")
    assert (record.results["available"], record.results["launched"]) == (there, runs)
    assert read_record(tmp_path / "launch.json", "paper-launch").results == record.results
    assert len(outcomes) == len(started) == (47 if runs else 2)
    assert all(argv[0] == sys.executable for argv in started)
    typed = [
        " ".join(argv[2:]).replace("torch.distributed.run", "torchrun") if "torch" in argv[2] else " ".join(argv[2:])
        for argv in started
    ]
    assert typed[0].startswith("iha plan recipes/pretrain-2.4b.yaml --gpus 8")
    assert typed[-1].startswith("iha report")
    assert typed[1:-1] == (record.results["commands"] if runs else [])


def test_sixteen_nodes_are_never_launched_from_one(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.setattr("iha.reproduce.run.Popen", Launched([]))
    record, _ = paper.reproduce_paper(128, "h200", tmp_path, command="iha reproduce --scale paper")
    assert not record.results["launched"]


@pytest.mark.parametrize("gpus", [0, 12])
def test_a_number_of_gpus_that_no_nodes_have_is_refused(gpus, tmp_path):
    with pytest.raises(ValueError, match=f"got {gpus}"):
        paper.training_stages(gpus, "h200", tmp_path)
