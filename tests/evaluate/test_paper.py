"""The paper's tables as data: columns that are tasks of ours, ranks that follow. The numbers: theory/test_reported."""

import pytest

from iha.evaluate.paper import BASELINE, FINE_TUNED, MULTI_KEY_GAINS, PRETRAIN, RULER_AVERAGES, ruler_table
from iha.evaluate.ruler.settings import MULTI_KEY, TASK_NAMES
from iha.evaluate.suites import by_name


@pytest.mark.parametrize("table", [PRETRAIN, FINE_TUNED], ids=["pretrain", "fine-tuned"])
def test_every_column_is_a_task_and_every_row_has_it(table):
    for measure in table.measures:
        for name in measure.tasks:
            assert measure.metric in by_name(name).metrics
    assert all(len(row) == len(table.measures) for row in table.rows.values())
    assert BASELINE in table.rows
    assert table.ranks.keys() == table.rows.keys()


@pytest.mark.parametrize("table", [PRETRAIN, FINE_TUNED], ids=["pretrain", "fine-tuned"])
def test_printed_ranks_are_means_of_ranks(table):
    """Ties share the mean of their places; where a model has no value, the column does not count for it."""
    for model, row in table.rows.items():
        places = []
        for column, value in enumerate(row):
            others = [other[column] for other in table.rows.values() if other[column] is not None]
            if value is not None:
                places.append(sum(o > value for o in others) + (1 + sum(o == value for o in others)) / 2)
        assert table.ranks[model] == pytest.approx(sum(places) / len(places), abs=0.051), model


def test_ruler_by_length_and_over_all():
    table = ruler_table((4096, 8192))
    titles = [measure.title for measure in table.measures]
    assert titles == ["Multi-Key 4096", "Multi-Key 8192", "All 4096", "All 8192", "Average"]
    assert table.measures[1].tasks == tuple(f"ruler_{name}_8192" for name in MULTI_KEY)
    assert len(table.measures[-1].tasks) == len(set(table.measures[-1].tasks)) == 2 * len(TASK_NAMES) == 26
    assert {row[-1] for row in table.rows.values()} == set(RULER_AVERAGES.values())
    assert all(value is None for row in table.rows.values() for value in row[:-1])
    assert ruler_table((4096,), "lm-eval").title == "RULER as lm-eval scores it"
    assert len(MULTI_KEY_GAINS) == 3
