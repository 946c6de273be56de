"""A run that is killed at any step and called again ends with the same numbers; damaged files are named."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from iha.records import write_json
from iha.synthetic import files, trainer
from iha.synthetic.config import OPTIMISERS, RunConfig
from iha.synthetic.stopping import best_epoch
from iha.synthetic.trainer import Trainer, train
from synthetic.runs import TINY, TINY_IHA, numbers


class KilledError(Exception):
    pass


@pytest.mark.parametrize("config", [TINY, TINY_IHA], ids=["mha", "iha"])
def test_resumed_at_any_step_a_run_ends_with_the_same_numbers(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    expected = train(config, whole)
    assert len(expected["history"]) == 3
    assert expected["finished"]

    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", -1.0)  # after every step
    steps = 0
    save_state = files.save_state

    def save_then_die(path: Path, state: dict[str, Any]) -> None:
        nonlocal steps
        save_state(path, state)
        steps += 1
        raise KilledError

    monkeypatch.setattr(files, "save_state", save_then_die)
    while True:
        try:
            record = train(config, broken)
        except KilledError:
            continue
        break
    assert steps >= 3 * 6  # every step of every epoch was the last one once
    assert numbers(record) == numbers(expected)
    assert record["best"] == max(record["history"], key=lambda entry: entry["validation"])
    assert len(list(broken.glob("*.pt"))) == 1  # it ended at its limit, which may be raised


def test_a_checkpoint_of_another_run_is_refused() -> None:
    state = Trainer(TINY).state()
    with pytest.raises(ValueError, match="another run"):
        Trainer(replace(TINY, seed=1)).load(state)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"not a checkpoint"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{TINY.name}.pt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"{TINY.name}\.pt is not a readable checkpoint .*delete it"):
        train(TINY, tmp_path)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=rf"cannot write .*{TINY.name}\.pt: No space left"):
        train(replace(TINY, epochs=1), tmp_path)


def test_a_run_of_earlier_code_goes_on(tmp_path: Path) -> None:
    """Files from before the common envelope, when multi-head attention was called mha."""
    config = replace(TINY, epochs=2)
    (tmp_path / "whole").mkdir()
    expected = train(config, tmp_path / "whole")
    run = Trainer(config)
    run.run_epoch(lambda: None)
    later = ("model", "norm", "weight_decay", "optimiser", "weights", "offsets")
    old = {k: v for k, v in config.as_json().items() if k not in later}
    old["mechanism"] = "mha"
    name = config.name.replace("multihead", "mha")
    files.save_state(tmp_path / f"{name}.pt", run.state() | {"config": old})
    write_json(tmp_path / f"{name}.json", run.results() | {"config": old, "machine": {}})
    record = train(config, tmp_path)
    assert numbers(record) == numbers(expected)
    assert [path.name for path in tmp_path.glob("*.json")] == [f"{name}.json"]


def test_early_stopping_waits_for_patience() -> None:
    run = Trainer(replace(TINY, patience=2, epochs=100))
    for score in (0.5, 0.7, 0.6):
        run.history.append({"validation": score})
        run.epoch += 1
        assert not run.finished
    run.history.append({"validation": 0.7})  # no better than the best
    run.epoch += 1
    assert run.finished
    assert best_epoch(run.history) == 1


def test_a_run_at_its_limit_goes_on_when_more_epochs_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    expected = train(replace(TINY, epochs=4), tmp_path / "whole")
    assert len(train(replace(TINY, epochs=2), tmp_path)["history"]) == 2
    run = train(replace(TINY, epochs=4), tmp_path)
    assert numbers(run) == numbers(expected)
    assert run["config"]["epochs"] == 4
    with pytest.raises(ValueError, match=r"another configuration: .*'epochs': 4"):  # results are not cut
        train(replace(TINY, epochs=3), tmp_path)
    (tmp_path / f"{TINY.name}.pt").unlink()
    assert numbers(train(replace(TINY, epochs=4), tmp_path)) == numbers(expected)
    with pytest.raises(ValueError, match=r"at its limit of 4 epochs and has no checkpoint .* cannot go on to 5"):
        train(replace(TINY, epochs=5), tmp_path)


def test_a_run_that_stopped_early_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY, patience=1, learning_rate=1e-9, epochs=50)  # nothing improves
    ended = train(config, tmp_path)
    assert len(ended["history"]) == 2
    assert not list(tmp_path.glob("*.pt"))
    monkeypatch.setattr(trainer, "Trainer", None)
    more = train(replace(config, epochs=100), tmp_path)
    assert more["history"] == ended["history"]
    assert more["config"]["epochs"] == 100
    assert files.read_run(tmp_path / f"{TINY.name.replace('0.001', '1e-09')}.json") == more


def test_a_run_that_diverges_says_so_and_keeps_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", -1.0)  # after every step
    config = replace(TINY, optimiser="sgd", learning_rate=900.0)
    message = r"the loss is (nan|inf) after \d steps of epoch 1: the run has diverged.*, 900 with sgd"
    with pytest.raises(ValueError, match=message):
        train(config, tmp_path)
    kept = files.read_run(tmp_path / f"{config.name}.json")
    assert not kept["finished"]
    assert math.isfinite(files.load_state(tmp_path / f"{config.name}.pt")["tally"]["loss"])
    with pytest.raises(ValueError, match=message):  # the same again, and nothing is lost
        train(config, tmp_path)


def test_alpha_and_r_have_their_own_learning_rate() -> None:
    optimiser = Trainer(replace(TINY_IHA, mixing_rate=10.0, learning_rate=1e-3)).optimiser
    assert [group["lr"] for group in optimiser.param_groups] == [1e-3, 1e-2]
    assert [tuple(p.shape) for p in optimiser.param_groups[1]["params"]] == [(2, 2, 2)] * 3 + [(2, 2)]


def test_optimisers_step_by_their_formulas() -> None:
    """The first step from a weight w with gradient g, by hand, for a learning rate and weight decay of 0.1."""
    rate = decay = 0.1
    for name in OPTIMISERS:
        run = Trainer(replace(TINY, optimiser=name, learning_rate=rate, weight_decay=decay))
        (weight,) = [p for n, p in run.model.named_parameters() if n == "read_out.weight"]
        before = weight.detach().clone()
        weight.grad = torch.linspace(-1, 1, weight.numel()).view_as(weight)
        penalised = weight.grad + decay * before  # the gradient of the loss with an L2 penalty
        expected = {
            "adamw": before * (1 - rate * decay) - rate * weight.grad.sign(),  # Adam's first step is the sign
            "adam": before - rate * penalised.sign(),
            "sgd": before - rate * penalised,
        }[name]
        run.optimiser.step()
        torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-6)


def test_without_weight_decay_adam_is_adamw(tmp_path: Path) -> None:
    runs = [train(replace(TINY, epochs=1, optimiser=name), tmp_path) for name in ("adamw", "adam")]
    assert runs[0]["name"] != runs[1]["name"]
    assert numbers(runs[0]) == numbers(runs[1])
