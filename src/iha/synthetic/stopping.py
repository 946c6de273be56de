"""Early stopping: by validation score, as runs stop; by validation loss, what that would have made of the same runs."""

from collections.abc import Callable, Sequence

Epoch = dict[str, float]  # an entry of a run's history


def by_score(epoch: Epoch) -> float:
    return epoch["validation"]


def by_loss(epoch: Epoch) -> float:
    return -epoch["validation_loss"]


def best_epoch(history: Sequence[Epoch], merit: Callable[[Epoch], float] = by_score) -> int:
    """From 0; the first of equals."""
    return max(range(len(history)), key=lambda i: merit(history[i]))


def stopped_early(history: Sequence[Epoch], patience: int, merit: Callable[[Epoch], float] = by_score) -> bool:
    """Whether the last `patience` epochs brought nothing better."""
    return bool(history) and len(history) - 1 - best_epoch(history, merit) >= patience


def until_stop(history: Sequence[Epoch], patience: int, merit: Callable[[Epoch], float]) -> Sequence[Epoch] | None:
    """The epochs that a run would have had with this criterion; None when it would have gone on."""
    ends = (n for n in range(1, len(history) + 1) if stopped_early(history[:n], patience, merit))
    return next((history[:n] for n in ends), None)
