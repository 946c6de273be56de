"""The paper's bars: runs gathered over records, compared where they can be, and the numbers of the records."""

import pytest

from iha.evaluate.paper import SYNTHETIC_LEADS
from iha.report.page.paper_model import bars_table, gather, missing_commands
from page_records import composition, results_of


def cells(table):
    return [row for row in table.rows if isinstance(row, list)]


def test_three_records_make_one_row(tmp_path):
    """As when every mechanism was a sweep of its own."""
    records = [
        composition("ternary", {"mha": [0.80, 0.82]}),
        composition("ternary", {"iha": [0.81, 0.85]}),
        composition("ternary", {"simplicial": [0.79, 0.84]}),
    ]
    (bars,) = gather(results_of(tmp_path, *records))
    assert bars.finished
    assert bars.lead == pytest.approx(1.0)
    row = cells(bars_table([bars]))[-1]
    assert row == ["3-hop", "0.001", "32", "82.0", "85.0", "84.0", "+1.0", "2 / 2 / 2"]


def test_an_unfinished_run_is_compared_at_the_same_epoch(tmp_path):
    record = composition("ternary", {"multihead": [0.7], "iha": [0.71, 0.75, 0.9], "simplicial": [0.72, 0.74]},
                         finished=False)  # fmt: skip
    (bars,) = gather(results_of(tmp_path, record))
    assert bars.lead == pytest.approx(1.0)  # 75 − 74 at epoch 2
    row = cells(bars_table([bars]))[-1]
    assert row[3:] == ["70.0", "90.0", "74.0", "+1.0 at epoch 2", "1… / 3… / 2…"]


def test_seeds_are_averaged_and_the_longer_of_two_copies_counts(tmp_path):
    records = [
        composition("binary", {"iha": [0.9], "simplicial": [0.8]}, seed=0),
        composition("binary", {"iha": [0.7], "simplicial": [0.8]}, seed=1),
        composition("binary", {"iha": [0.9, 0.96]}, seed=0, name="longer"),
    ]
    (bars,) = gather(results_of(tmp_path, *records))
    row = cells(bars_table([bars]))[-1]
    assert row[4] == "83.0"  # (96 + 70) / 2
    assert row[3] == "–"


@pytest.mark.parametrize("change", [{"model": "ours"}, {"norm": "post"}, {"num_heads": 4}, {"weight_decay": 0.1},
                                    {"optimiser": "sgd"}, {"weights": "xavier"}, {"offsets": "published"},
                                    {"sizes": [5, 6]}, {"init": "warm_start"}])  # fmt: skip
def test_other_models_and_protocols_are_left_out(change, tmp_path):
    assert gather(results_of(tmp_path, composition("ternary", {"iha": [0.9]}, **change))) == []


def test_what_is_missing_has_a_command(tmp_path):
    done = composition("ternary", {"mha": [0.8], "iha": [0.8], "simplicial": [0.8]}, learning_rate=1e-4)
    commands = missing_commands(gather(results_of(tmp_path, done)))
    assert "iha synth ternary --scale paper --learning-rates 0.0001" not in commands
    assert len(commands) == 3


def test_the_papers_leads_are_those_of_the_data_file():
    shown = [row[6] for row in cells(bars_table([]))]
    assert shown == [f"up to +{SYNTHETIC_LEADS[task]} %" for task in ("binary", "ternary")]
