"""What interrupts a run leaves no trace in what it ends with."""

import json
import os
import shutil
import subprocess
import time

import pytest
import runs
import soak


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    runs.completed(runs.tiny(directory), directory / "run")
    return directory / "run"


def assert_bit_identical(run, expected):
    assert not soak.differences(run, runs.weights(expected), runs.metrics(expected, "loss"))


def test_sigterm_saves_and_the_next_session_ends_bit_identical(undisturbed, tmp_path):
    recipe = runs.tiny(tmp_path, "checkpoint.every=100")
    assert runs.finish(runs.start(recipe, tmp_path / "run", stop_at=3)) == [143]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000003"]
    runs.completed(recipe, tmp_path / "run")
    assert_bit_identical(tmp_path / "run", undisturbed)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["kind"] == "train-run"
    assert record["results"]["step"] == 6
    assert record["config"]["schedule"]["steps"] == 6


def test_what_attention_drops_is_a_function_of_the_step(undisturbed, tmp_path):
    recipe = runs.tiny(tmp_path, "model.config.attention_dropout=0.3", "checkpoint.every=100")
    runs.completed(recipe, tmp_path / "whole")
    assert runs.finish(runs.start(recipe, tmp_path / "cut", stop_at=3)) == [143]
    runs.completed(recipe, tmp_path / "cut")
    assert_bit_identical(tmp_path / "cut", tmp_path / "whole")
    losses = [[loss for _, loss in runs.metrics(run, "loss")] for run in (tmp_path / "whole", undisturbed)]
    assert all(one != other for one, other in zip(*losses, strict=True))  # it does drop, from the first step on


@pytest.mark.parametrize("stop_at", [3, 4])
def test_across_growths(tmp_path, stop_at):
    """Growths before steps 3 and 5: stopped right after one, and right before the other."""
    recipe = runs.tiny(tmp_path, *runs.GROWING, "checkpoint.every=100")
    runs.completed(recipe, tmp_path / "whole")
    assert runs.finish(runs.start(recipe, tmp_path / "cut", stop_at=stop_at)) == [143]
    runs.completed(recipe, tmp_path / "cut")
    assert_bit_identical(tmp_path / "cut", tmp_path / "whole")
    cut, whole = (json.loads((tmp_path / name / "run.json").read_text())["results"] for name in ("cut", "whole"))
    assert [growth["step"] for growth in whole["grown"]] == [2, 4]
    assert {key: cut[key] for key in ("grown", "flops", "parameters")} == {
        key: whole[key] for key in ("grown", "flops", "parameters")
    }
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("cut", "whole")]
    assert configs[0] == configs[1]
    grown = [layer["num_pseudo_heads"] * layer.get("num_pseudo_keys", layer["num_pseudo_heads"])
             for layer in configs[0]["layer_schedule"]]  # fmt: skip
    assert sum(number > 1 for number in grown) == len({growth["layer"] for growth in whole["grown"]})


def test_a_finished_run_stays_as_it_is(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    runs.completed(runs.tiny(tmp_path), tmp_path / "run")
    assert_bit_identical(tmp_path / "run", undisturbed)


def test_a_damaged_checkpoint_is_skipped_and_the_run_ends_alike(undisturbed, tmp_path):
    """tests/train/test_checkpoints.py has the kinds of damage."""
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    shard = next((run / "checkpoints" / "step-00000006").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    runs.completed(runs.tiny(tmp_path), run)
    assert "step-00000006 is skipped" in runs.output(run)
    assert_bit_identical(run, undisturbed)


def test_killed_at_random_moments_saves_included(tmp_path):
    """The short version of `make soak`."""
    results = soak.soak(tmp_path, seconds=30, seed=int(os.environ.get("SOAK_SEED", "5")), kills=5)
    assert results["kills"] >= 5 or results["soak_seconds"] >= 30


@pytest.mark.slow
def test_killed_twenty_times(tmp_path):
    results = soak.soak(tmp_path, seconds=1500, seed=11, kills=20)
    assert results["kills"] >= 20
    assert results["survived"]["in the middle of a save"] >= 1


def test_two_runs_in_one_directory_are_refused(tmp_path):
    recipe = runs.tiny(tmp_path, "schedule.steps=100000")
    first = runs.start(recipe, tmp_path / "run")
    try:
        _wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists() and runs.metrics(tmp_path / "run", "loss"))
        second = tmp_path / "elsewhere"  # only its output
        second.symlink_to(tmp_path / "run")
        assert runs.finish(runs.start(recipe, second)) == [2]
        assert "is in use by another process" in runs.output(second)
        assert first[0].is_alive()
    finally:
        runs.kill(first)


def test_another_recipe_in_the_same_directory_is_refused(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    recipe = runs.tiny(tmp_path, "optimiser.learning_rate=1")
    assert runs.finish(runs.start(recipe, tmp_path / "run")) == [2]
    assert "optimiser.learning_rate was 0.01 and is 1.0" in runs.output(tmp_path / "run")


def test_a_full_disk_stops_the_run_and_leaves_the_last_good_checkpoint(undisturbed, tmp_path):
    """A small tmpfs: the first checkpoints fit, the third does not."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        run = mount / "run"
        recipe = runs.tiny(tmp_path, f"data.directory={tmp_path}/data", "checkpoint.keep=100", "checkpoint.every=1",
                           "model.config.hidden_size=64")  # fmt: skip
        assert runs.finish(runs.start(recipe, run, output=tmp_path)) == [2]
        assert "No space left on device" in (tmp_path / "run.rank0.txt").read_text()
        complete = sorted(path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("."))
        assert complete
        assert not list((run / "checkpoints").glob(".step*"))
        # What is there is good: with more room, the run goes on from it.
        shutil.copytree(run, tmp_path / "roomy", ignore=shutil.ignore_patterns(".lock"))
        runs.completed(recipe, tmp_path / "roomy")
        assert "skipped" not in runs.output(tmp_path / "roomy")
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def _wait_for(condition, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)
