"""The FLOP-matched window: the window of the local layers at which a schedule costs as much as global attention."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from iha.accounting.flops import ratio_to_global
from iha.accounting.mechanisms import AttentionShape
from iha.layers.schedule import Schedule


@dataclass(frozen=True)
class MatchedWindow:
    window: int  # the largest within the target; num_tokens if no window exceeds the target
    solution: float  # the interpolated point between `window` and `window` + 1 where the target is met
    ratio: float  # cost relative to global attention, at `window`
    ratio_above: float | None  # the same at `window` + 1; None if `window` is num_tokens


def matched_window(
    shape: AttentionShape,
    num_tokens: int,
    schedule: Callable[[int], Schedule],
    *,
    convention: str = "exact",
    target: Fraction | int = 1,
    parts: tuple[str, ...] = ("attention",),
) -> MatchedWindow:
    """The window at which `schedule(window)` costs `target` times as much as global multi-head attention.

    `parts` of the cost: "attention", "mixing", "projections".
    """

    def ratio(window: int) -> Fraction:
        return ratio_to_global(shape, schedule(window), num_tokens, convention, parts)

    low, high = 1, num_tokens
    if ratio(low) > target:
        raise ValueError(
            f"no window of at least 1 token costs {float(target):g} of global attention at {num_tokens} tokens: "
            f"a window of 1 already costs {float(ratio(low)):.4g}"
        )
    if ratio(high) <= target:
        return MatchedWindow(high, float(high), float(ratio(high)), None)
    while high - low > 1:  # ratio(low) <= target < ratio(high): the cost grows with the window
        middle = (low + high) // 2
        low, high = (middle, high) if ratio(middle) <= target else (low, middle)
    below, above = ratio(low), ratio(high)
    return MatchedWindow(low, low + float((target - below) / (above - below)), float(below), float(above))
