"""Real processes over gloo: two compute what one does, four in HSDP too, and a run may change their number."""

import re

import pytest
import runs
import torch

from iha.train.loop import train

DOUBLE = ("parallel.precision=float64", "checkpoint.every=3")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """An undisturbed float64 run on one process: what every other must compute."""
    directory = tmp_path_factory.mktemp("one")
    runs.completed(runs.tiny(directory, *DOUBLE), directory / "run")
    return directory / "run"


def assert_same_run(run, expected, tolerance):
    for name in ("loss", "gradient_norm"):
        got, want = runs.metrics(run, name), runs.metrics(expected, name)
        assert [step for step, _ in got] == [step for step, _ in want]
        assert [v for _, v in got] == pytest.approx([v for _, v in want], rel=tolerance, abs=tolerance)
    for name in ("validation/pairs", "validation/hops"):
        got, want = runs.metrics(run, name), runs.metrics(expected, name)
        assert len(want) == 2
        assert [v for _, v in got] == pytest.approx([v for _, v in want], rel=tolerance)
    got, want = runs.weights(run), runs.weights(expected)
    assert got.keys() == want.keys()
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=tolerance, atol=tolerance, msg=name)


def test_two_processes_are_one_in_float64(one, tmp_path):
    runs.completed(runs.tiny(tmp_path, *DOUBLE), tmp_path / "run", world=2)
    assert_same_run(tmp_path / "run", one, 1e-12)


def test_micro_batches_and_chunks_of_the_loss_change_nothing(one, tmp_path):
    recipe = runs.tiny(tmp_path, *DOUBLE, "parallel.micro_batch=1", "parallel.loss_chunk=10")
    runs.completed(recipe, tmp_path / "run")
    assert_same_run(tmp_path / "run", one, 1e-12)


def test_four_processes_in_hsdp_with_activation_checkpointing(one, tmp_path):
    recipe = runs.tiny(tmp_path, *DOUBLE, "parallel.shards=2", "parallel.activation_checkpointing=true")
    runs.completed(recipe, tmp_path / "run", world=4)
    assert_same_run(tmp_path / "run", one, 1e-12)


def test_two_processes_are_one_in_float32_up_to_the_order_of_sums(tmp_path):
    for world in (1, 2):
        runs.completed(runs.tiny(tmp_path), tmp_path / str(world), world)
    assert_same_run(tmp_path / "2", tmp_path / "1", 2e-4)


def test_a_run_goes_from_two_processes_to_one_to_two(one, tmp_path):
    """Stopped at steps 2 and 4; a float64 run then ends where an undisturbed one ends."""
    run = tmp_path / "run"
    for stop, world in ((2, 2), (4, 1), (6, 2)):
        recipe = runs.tiny(tmp_path, *DOUBLE, "checkpoint.every=2")
        codes = runs.finish(runs.start(recipe, run, world, stop_at=stop))
        assert codes == [0 if stop == 6 else 143] * world, runs.output(run)
    assert_same_run(run, one, 1e-12)


@pytest.mark.slow
def test_bfloat16_trains_on_two_processes_as_on_one(tmp_path):
    """Both through FSDP2: float32 weights, bfloat16 products, float32 sums of gradients."""
    for world in (1, 2):
        runs.completed(runs.tiny(tmp_path, "parallel.precision=bfloat16"), tmp_path / str(world), world)
    losses = [[loss for _, loss in runs.metrics(tmp_path / world, "loss")] for world in "12"]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)
    assert losses[0][-1] < losses[0][0]
    assert runs.weights(tmp_path / "2")["model.model.embed_tokens.weight"].dtype == torch.float32


def test_a_batch_that_processes_cannot_share_is_refused(tmp_path):
    codes = runs.finish(runs.start(runs.tiny(tmp_path, "data.batch=3"), tmp_path / "run", world=2))
    assert codes == [2, 2]
    assert "data.batch is 3 sequences, which 2 processes cannot share evenly" in runs.output(tmp_path / "run", 1)


def test_it_is_refused_before_the_processes_connect(tmp_path, monkeypatch):
    """One that ends at once would cut off another that still connects: here the other never comes."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="which 2 processes cannot share evenly"):
        train(runs.tiny(tmp_path, "data.batch=3"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_directory_that_the_first_process_cannot_make_ends_both(tmp_path):
    """The error of the disk reaches the second, which would wait for the first otherwise."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").write_text("a file")
    codes = runs.finish(runs.start(runs.tiny(tmp_path), tmp_path / "run", world=2), timeout=100)
    assert codes == [1, 1]
    for rank in range(2):
        (last,) = runs.output(tmp_path / "run", rank).strip().splitlines()[-1:]
        assert re.search(r"FileExistsError: .*File exists: .*checkpoints", last)


def test_few_targets_on_two_processes_are_those_of_one(tmp_path):
    """Only answers are predicted, a few tokens of each share."""
    recipe = runs.tiny(tmp_path, *DOUBLE, "data.sources.0.answers_only=true", "data.sources.1.answers_only=true")
    for world in (1, 2):
        runs.completed(recipe, tmp_path / str(world), world)
    assert_same_run(tmp_path / "2", tmp_path / "1", 1e-12)
