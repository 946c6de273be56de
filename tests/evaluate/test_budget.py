"""The choice is the best one of all within every budget, and budgets that make no sense are refused."""

import itertools

import pytest
import torch

from iha.convert.resize import Kept
from iha.evaluate.budget import Budget, Option, solve, total, uniform


def option(rise: float, window: int | None = None, **costs: float) -> Option:
    return Option(Kept((0,), (0,), window), rise, costs)


@pytest.mark.parametrize("names", [("flops",), ("latency", "cache")])
def test_the_choice_is_the_best_one_of_all(names) -> None:
    """Against every combination; costs are rounded up to units, so a little of a budget may be left unused."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        rises = torch.rand(4, 4, generator=generator)
        costs = {name: torch.randint(1, 90, (4, 4), generator=generator) for name in names}
        options = {
            n: [option(float(rises[n, m]), **{name: float(costs[name][n, m]) for name in names}) for m in range(4)]
            for n in range(4)
        }
        budgets = {name: float(costs[name].float().mean() * 4) for name in names}
        within = [
            dict(enumerate(choice))
            for choice in itertools.product(*options.values())
            if all(total(dict(enumerate(choice)), name) <= 0.999 * budget for name, budget in budgets.items())
        ]
        found = solve(options, budgets)
        assert all(total(found, name) <= budget for name, budget in budgets.items())
        best = min(sum(o.rise for o in choice.values()) for choice in within)
        assert sum(o.rise for o in found.values()) <= best + 1e-12


def test_what_does_not_fit_is_said_in_shares() -> None:
    with pytest.raises(ValueError, match=r"cache: the smallest layers already cost 0\.5 of .* the budget is 0\.4"):
        solve({0: [option(0, cache=50)]}, {"cache": 40}, lambda name, cost: cost / 100)
    both = {0: [option(0, flops=1, cache=3), option(0, flops=3, cache=1)]}
    with pytest.raises(ValueError, match="no choice of layers is within the budgets of flops and of cache"):
        solve(both, {"flops": 2, "cache": 2})


def test_the_smallest_layers_are_taken_if_they_fit_but_for_rounding() -> None:
    options = {n: [option(1.0, flops=1.0), option(0.0, flops=5.0)] for n in range(3)}  # a third of 4096 units each
    assert {o.rise for o in solve(options, {"flops": 3.0}).values()} == {1.0}


def test_uniform_choices_are_those_that_all_layers_have() -> None:
    options = {0: [option(0, 8, flops=2), option(0, 4, flops=1)], 1: [option(0, 8, flops=2), option(0, 2, flops=1)]}
    (choice,) = uniform(options, {"flops": 4})
    assert [o.kept.window for o in choice.values()] == [8, 8]
    assert uniform(options, {"flops": 3}) == []


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({}, "no budget: give flops or latency"),
        ({"flops": 1.0, "latency": 0.5}, "flops 1 and latency 0.5 both limit compute"),
        ({"cache": 0.0}, "a budget of cache must be positive and finite, got 0.0"),
        ({"latency": float("nan")}, "a budget of latency must be positive and finite, got nan"),
    ],
)
def test_budgets_that_make_no_sense(shares, message) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**shares)
