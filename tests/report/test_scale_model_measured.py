"""Means and spreads over seeds, length by length, against numbers worked out by hand."""

from iha.report.scale_model_measured import by_length, measured_tables
from scale_model_records import measured_record


def records():
    return [
        measured_record("iha", 0, retrieval={"single": {"256": 1.0, "512": 0.5}, "hops-2": {"512": 0.25}}),
        measured_record("iha", 1, retrieval={"single": {"256": 0.5, "512": 0.5}, "hops-2": {}}),
        measured_record("global", 0, retrieval={"single": {"256": 0.0}}),
        measured_record("iha", 0, "tune", problems=40.0),
    ]


def test_accuracies_by_length_over_seeds():
    found = by_length(records())
    assert found["single"]["iha"][256]["mean"] == 0.75
    assert found["single"]["iha"][256]["n"] == 2
    assert found["hops-2"]["iha"][512]["values"] == [0.25]
    assert list(found["single"]["global"]) == [256]


def test_tables():
    puzzles, retrieval, tuned_puzzles, problems = measured_tables(records())
    assert puzzles.rows[0] == ["iha", "2", "55.0 ± 7.1", "25.0 ± 0.0"]
    assert retrieval.rows[:3] == ["single", ["iha", "75 ± 35", "50 ± 0"], ["global", "0", "–"]]
    assert tuned_puzzles.rows == [["iha", "1", "50.0", "25.0"]]
    assert problems.rows == [["iha", "1", "40.0", "41.0", "40.0"]]
    assert "20 held-out problems, 16 samples at temperature 0.6" in problems.notes[0]
