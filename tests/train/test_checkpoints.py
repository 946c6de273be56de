"""Checkpoints: complete or invisible, verified when read, kept as asked."""

import json
import threading

import pytest
import torch

from iha.train import checkpoints
from iha.train.checkpoints import MANIFEST, STATE, Checkpoints, complete_checkpoints, damage
from iha.train.parallel import Processes
from iha.train.recipe import Checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
ALONE = Processes(0, 1, torch.device("cpu"))


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"model.a": torch.full((3, 5), value), "optimiser.step": torch.tensor([value])}


def saved(directory, *steps, **settings) -> Checkpoints:
    found = Checkpoints(directory, Checkpoint(**{"keep": 10, "asynchronous": False, **settings}), ALONE)
    for step in steps:
        found.save(step, tensors(float(step)), {"step": step})
    return found


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_the_newest_is_loaded_into_the_tensors(tmp_path):
    into = tensors(0.0)
    assert saved(tmp_path, 5, 12).load(lambda _: into)[0] == {"step": 12}
    assert torch.equal(into["model.a"], torch.full((3, 5), 12.0))
    assert torch.equal(into["optimiser.step"], torch.tensor([12.0]))
    assert saved(tmp_path / "empty").load(lambda _: into) is None


def test_which_tensors_it_is_loaded_into_may_depend_on_its_state(tmp_path):
    asked = []
    state, tensors_ = saved(tmp_path, 5).load(lambda state: asked.append(state) or tensors(0.0))
    assert asked == [state] == [{"step": 5}]
    assert torch.equal(tensors_["model.a"], torch.full((3, 5), 5.0))


def test_what_is_saved_is_a_copy_of_that_moment(tmp_path, monkeypatch):
    """Training goes on while the file is written."""
    go = threading.Event()
    write = checkpoints.dcp.save
    monkeypatch.setattr(checkpoints.dcp, "save", lambda *a, **k: go.wait(60) and write(*a, **k))
    found, live = saved(tmp_path, asynchronous=True), tensors(1.0)
    found.save(1, live, {"step": 1})
    assert not list(tmp_path.glob("step-*"))
    live["model.a"].fill_(-1)
    go.set()
    found.wait()
    into = tensors(0.0)
    found.load(lambda _: into)
    assert torch.equal(into["model.a"], torch.full((3, 5), 1.0))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("truncated", "bytes, the manifest says"),
        ("changed", "has changed since it was written (SHA-256)"),
        ("missing", "is missing"),
        ("manifest", "manifest.json is not readable"),
        ("state", "state.json has changed"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_a_message(tmp_path, caplog, harm, said):
    found = saved(tmp_path, 4, 6)
    newest = tmp_path / "step-00000006"
    shard = next(newest.glob("*.safetensors"))
    content = shard.read_bytes()
    match harm:
        case "truncated":
            shard.write_bytes(content[:-10])
        case "changed":
            shard.write_bytes(content[:-10] + bytes([content[-10] ^ 1]) + content[-9:])
        case "missing":
            shard.unlink()
        case "manifest":
            (newest / MANIFEST).write_text('{"files": [')
        case "state":
            text = (newest / STATE).read_text()
            (newest / STATE).write_text(text.replace("6", "7"))
    assert said in damage(newest)
    into = tensors(0.0)
    assert found.load(lambda _: into)[0] == {"step": 4}
    assert into["model.a"].unique().tolist() == [4.0]
    assert f"step-00000006 is skipped: {damage(newest)}" in caplog.text
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["step-00000004"]
    found.save(6, tensors(6.5), {"step": 6})  # a good one takes its place
    assert found.load(lambda _: into)[0] == {"step": 6}


def test_processes_share_the_files_to_verify(tmp_path):
    saved(tmp_path, 1)
    path = tmp_path / "step-00000001"
    files = sorted(json.loads((path / MANIFEST).read_text())["files"])
    (path / files[1]).unlink()
    assert [damage(path, rank, len(files)) is None for rank in range(len(files))] == [
        name != files[1] for name in files
    ]


def test_retention(tmp_path):
    saved(tmp_path, *range(1, 10), keep=2, keep_every=3)
    assert names(tmp_path) == [f"step-{step:08d}" for step in (3, 6, 8, 9)]


def test_leftovers_of_a_killed_save_are_removed(tmp_path):
    (tmp_path / ".step-00000003.partial").mkdir()
    (tmp_path / ".step-00000003.partial" / "shard").write_text("half")
    saved(tmp_path)
    assert names(tmp_path) == []


def test_a_save_that_fails_says_so_and_leaves_what_is_there(tmp_path, monkeypatch):
    found = saved(tmp_path, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "_sync", full)
    with pytest.raises(ValueError, match=r"checkpoint of step 2 .* OSError: .*No space left on device"):
        found.save(2, tensors(2.0), {"step": 2})
    assert names(tmp_path) == ["step-00000001"]
    found = saved(tmp_path, asynchronous=True)
    found.save(2, tensors(2.0), {"step": 2})
    found.close()
    assert found.failed  # the trainer asks before each step
    with pytest.raises(ValueError, match="step 2"):
        found.wait()
