"""Early stopping by two criteria, on curves short enough to follow by eye."""

from iha.synthetic.stopping import best_epoch, by_loss, by_score, stopped_early, until_stop

SCORES = (0.5, 0.7, 0.6, 0.7, 0.8, 0.7, 0.7)
LOSSES = (0.9, 0.5, 0.6, 0.4, 0.5, 0.6, 0.3)
HISTORY = [{"validation": s, "validation_loss": x} for s, x in zip(SCORES, LOSSES, strict=True)]


def test_the_best_epoch_is_the_first_of_equals() -> None:
    assert best_epoch(HISTORY[:4]) == 1
    assert best_epoch(HISTORY) == 4
    assert best_epoch(HISTORY, by_loss) == 6


def test_a_run_stops_when_patience_has_passed_without_anything_better() -> None:
    assert not stopped_early([], 1)
    assert [stopped_early(HISTORY[:n], 2) for n in range(1, 8)] == [False, False, False, True, False, False, True]
    assert until_stop(HISTORY, 2, by_score) == HISTORY[:4]
    assert until_stop(HISTORY, 3, by_score) is None
    assert until_stop(HISTORY, 2, by_loss) == HISTORY[:6]
    assert until_stop(HISTORY, 1, by_loss) == HISTORY[:3]
