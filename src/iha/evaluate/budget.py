"""A budget of compute and of cache, and the best choice of one option per layer within it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf, isfinite
from operator import add

import numpy as np

from iha.convert.resize import Kept

_UNITS = 4096  # a budget is counted in so many units, and every cost is rounded up to one


@dataclass(frozen=True)
class Budget:
    """Shares of what global multi-head attention in every layer costs; None is no limit."""

    flops: float | None = None  # attention and mixing of one forward pass
    latency: float | None = None  # measured time of the attention layers of one forward pass
    cache: float | None = None  # bytes of keys and values

    def __post_init__(self) -> None:
        for name, share in self.shares.items():
            if not (isfinite(share) and share > 0):
                raise ValueError(f"a budget of {name} must be positive and finite, got {share}")
        if not self.shares:
            raise ValueError("no budget: give flops or latency, or cache, or cache with one of the two")
        if self.flops is not None and self.latency is not None:
            raise ValueError(f"flops {self.flops:g} and latency {self.latency:g} both limit compute: give one of them")

    @property
    def shares(self) -> dict[str, float]:
        """Those that are given."""
        return {name: share for name, share in asdict(self).items() if share is not None}


@dataclass(frozen=True)
class Option:
    """One way to have one layer."""

    kept: Kept
    rise: float  # of the held-out loss, if only this layer is so
    costs: Mapping[str, float]  # by the names of `Budget`, in any unit

    @property
    def numbers(self) -> tuple[int, int, int | None]:
        return len(self.kept.queries), len(self.kept.keys), self.kept.window


Options = Mapping[int, Sequence[Option]]  # by layer
Choice = dict[int, Option]
_States = dict[tuple[int, ...], tuple[float, Choice]]  # the least rise, by units spent of every budget


def total(choice: Mapping[int, Option], name: str) -> float:
    return sum(option.costs[name] for option in choice.values())


def solve(
    options: Options,
    budgets: Mapping[str, float],  # one or two, in the unit of the costs
    share: Callable[[str, float], float] = lambda name, cost: cost,  # how a sum of costs is stated in errors
) -> Choice:
    """One option per layer within all budgets, with the least sum of rises (dynamic programming over units of them)."""
    for name, budget in budgets.items():
        least = sum(min(option.costs[name] for option in found) for found in options.values())
        if least > budget:
            said = f"{share(name, least):.4g} of global attention; the budget is {share(name, budget):.4g}"
            raise ValueError(f"{name}: the smallest layers already cost {said}")
    best: _States = {(0,) * len(budgets): (0.0, {})}
    for index, found in options.items():
        after: _States = {}
        units = [tuple(ceil(o.costs[name] / budget * _UNITS) for name, budget in budgets.items()) for o in found]
        for spent, (rise, chosen) in best.items():
            for option, cost in zip(found, units, strict=True):
                now, sum_of_rises = tuple(map(add, spent, cost)), rise + option.rise
                if max(now) <= _UNITS and (now not in after or sum_of_rises < after[now][0]):
                    after[now] = sum_of_rises, {**chosen, index: option}
        best = _undominated(after)
    if best:
        return min(best.values(), key=lambda state: state[0])[1]
    smallest = {
        index: min(found, key=lambda o: [o.costs[name] for name in budgets]) for index, found in options.items()
    }
    if any(total(smallest, name) > budget for name, budget in budgets.items()):
        raise ValueError(f"no choice of layers is within the budgets of {' and of '.join(budgets)}")
    return smallest  # it fits, but not with every cost rounded up to units


def uniform(options: Options, budgets: Mapping[str, float]) -> list[Choice]:
    """The choices within the budgets that have the same numbers and window in all layers."""
    tables = {index: {option.numbers: option for option in found} for index, found in options.items()}
    common = set.intersection(*(set(table) for table in tables.values()))
    same = [{index: table[numbers] for index, table in tables.items()} for numbers in common]
    return [choice for choice in same if all(total(choice, name) <= budgets[name] for name in budgets)]


def _undominated(states: _States) -> _States:
    """Without those that spend no less of any budget than another one, for no smaller rise."""
    kept: _States = {}
    least = np.full(_UNITS + 1, inf)  # rise of the states before, by the units that they spend of a second budget
    for spent in sorted(states):
        rise, second = states[spent][0], spent[1] if len(spent) > 1 else _UNITS
        if rise < least[second]:
            kept[spent] = states[spent]
            least[second:] = np.minimum(least[second:], rise)
    return kept
