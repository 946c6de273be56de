"""The training runs: data, counts, floors; the results themselves are reported, not tested."""

import math

import pytest
import torch

from iha.synthetic.tasks.cpm3 import count_matches
from iha.theory.cpm3 import brute_force
from iha.theory.filter_bound import operator_residual
from iha.theory.learned import CPM3, Experiment, learn, plan, ring
from iha.theory.polynomial_filters import ceil_sqrt


def test_batched_counts_are_brute_force() -> None:
    x = torch.randint(0, CPM3.largest + 1, (5, 6))
    assert torch.equal(count_matches(x, CPM3.M, CPM3.G), torch.stack([brute_force(row, CPM3) for row in x]))


def test_ring_powers_are_orthogonal_so_the_floor_is_known() -> None:
    A = ring(12, seed=3).double()
    for heads in range(1, 5):
        assert operator_residual(A, 4, heads) == pytest.approx(math.sqrt(1 - heads / 4), abs=1e-12)


def test_the_plan_has_what_was_asked_for() -> None:
    rows = {(e.task, e.kind, e.heads, e.size) for e in plan()}
    for k in (4, 9):
        assert {
            ("filters", "IHA", ceil_sqrt(k), k),
            ("filters", "MHA", ceil_sqrt(k), k),
            ("filters", "MHA", k, k),
        } <= rows
    assert {("cpm3", "IHA", 3, 8), ("cpm3", "MHA", 3, 8), ("cpm3", "MHA", 8, 8)} <= rows
    assert len({e.steps for e in plan() if e.task == "filters"}) == 1


@pytest.mark.parametrize("task", [("filters", 4), ("cpm3", 5)])
@pytest.mark.parametrize("kind", ["IHA", "MHA"])
def test_seeds_are_independent_and_repeatable(task, kind) -> None:
    """A seed's result does not depend on the seeds trained beside it: vmap shares nothing between them."""
    experiment = Experiment(task[0], kind, 2, task[1], steps=8)
    together, alone = experiment.run([0, 1]), experiment.run([1])
    assert together[1].error == pytest.approx(alone[0].error, rel=1e-4)
    assert together[0].error != together[1].error
    assert experiment.run([0, 1])[0].error == together[0].error


def test_training_helps_and_respects_the_floor() -> None:
    """One head cannot do better than √(3/4), and gets near it."""
    errors = [run.error for run in Experiment("filters", "MHA", 1, 4, steps=400).run([0, 1])]
    floor = math.sqrt(3 / 4)
    assert all(floor - 0.03 < e < floor + 0.06 for e in errors)  # a sample of inputs may be a little kind


def test_the_record_has_four_seeds_of_every_experiment() -> None:
    experiments = [Experiment("filters", kind, 1, 4, steps=2) for kind in ("IHA", "MHA")]
    experiments.append(Experiment("cpm3", "MHA", 1, 4, steps=2))
    record = learn(3, "iha verify --train --seed 3", experiments=experiments)
    assert (record.kind, record.seed, len(record.config["experiments"])) == ("learned", 3, 3)
    assert [(run["kind"], run["seed"]) for run in record.results] == [
        (kind, seed) for kind in ("IHA", "MHA", "MHA") for seed in (3, 4, 5, 6)
    ]
