"""The comparison: equal FLOPs, the same batches, the rate chosen in validation, a record."""

import pytest
import torch

from iha.experiment.architecture_tasks import TASKS
from iha.experiment.architectures import KIND, compare, conclusion, forward_flops, matched_widths, trained


@pytest.mark.parametrize("name", TASKS)
def test_the_twin_costs_the_same(name: str) -> None:
    task = TASKS[name]
    widths = matched_widths(task)
    ours, theirs = (forward_flops(task, mechanism, widths[mechanism]) for mechanism in ("iha", "multihead"))
    assert theirs == pytest.approx(ours, rel=2e-3)
    assert widths["multihead"] > widths["iha"] == task.feed_forward


def test_flops_are_those_of_the_matrices_of_an_encoder() -> None:
    """By hand: projections and mixing of three IHA layers, P² times the pairs, gated feed-forward, output head."""
    task, (B, N, E, H, P, F, V) = TASKS["masked-text"], (16, 64, 64, 4, 2, 128, 257)
    D = E // H
    layer = 8 * E * E + 2 * D * 3 * H * H * P + 4 * E * P * P * N + 6 * E * F
    assert forward_flops(task, "iha", F) == B * N * (3 * layer + 2 * E * V)


def test_training_learns_and_depends_on_the_seed_alone() -> None:
    task = TASKS["digits"]
    first, again, other = (trained(task, "iha", 32, 3e-3, seed, steps) for seed, steps in ((0, 40), (0, 40), (1, 1)))
    for (name, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert not torch.equal(a, c) or "norm" in name, name
    untrained = trained(task, "iha", 32, 1e-12, 0, 1)
    assert task.scores(first, "test")["loss"] < task.scores(untrained, "test")["loss"] - 0.1


def test_a_record_of_every_run() -> None:
    record = compare("digits", command="iha experiment architectures", seeds=(0, 1), rates=(1e-3, 2e-3), steps=2)
    assert record.kind == KIND
    assert record.config == {"task": "digits", "steps": 2, "batch": 64, "rates": [1e-3, 2e-3], "seeds": [0, 1]}
    assert [(run["mechanism"], run["rate"], run["seed"]) for run in record.results["runs"]] == [
        (mechanism, rate, seed) for mechanism in ("iha", "multihead") for rate in (1e-3, 2e-3) for seed in (0, 1)
    ]
    assert record.results["models"]["iha"]["feed_forward"] == 128
    assert record.results["difference"]["loss"]["n"] == 2


def test_rates_are_chosen_in_validation_and_differences_are_paired() -> None:
    def run(mechanism: str, rate: float, seed: int, validation: float, test: float) -> dict:
        scores = {"validation": {"loss": validation, "accuracy": 0.0}, "test": {"loss": test, "accuracy": 1 - test}}
        return {"mechanism": mechanism, "rate": rate, "seed": seed, **scores}

    runs = [
        run("iha", 0.1, 0, 3.0, 0.0), run("iha", 0.1, 1, 3.0, 0.0),  # better in the test, but not chosen
        run("iha", 0.2, 0, 1.0, 0.5), run("iha", 0.2, 1, 1.0, 0.25),
        run("multihead", 0.1, 1, 1.0, 0.5), run("multihead", 0.1, 0, 1.0, 0.875),
        run("multihead", 0.2, 0, 2.0, 0.0), run("multihead", 0.2, 1, 2.0, 0.0),
    ]  # fmt: skip
    found = conclusion(runs)
    assert found["rates"] == {"iha": 0.2, "multihead": 0.1}
    assert found["test"]["iha"]["loss"]["values"] == [0.5, 0.25]
    assert found["difference"]["loss"]["values"] == [-0.375, -0.25]
    assert found["difference"]["accuracy"]["mean"] == pytest.approx(0.3125)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": "chess"}, "got 'chess'"),
        ({"seeds": ()}, "need seeds"),
        ({"rates": (-1.0,)}, "-1.0"),
        ({"steps": 0}, "0"),
    ],
)
def test_bad_settings_are_named(wrong: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        compare(**{"name": "digits", "command": "x", **wrong})
