"""What was learned, in a table and a picture."""

import pytest

from iha.records import Record
from iha.report.learned import draw_learned, learned_table

RUNS = [
    {"task": task, "kind": kind, "heads": heads, "parameters": 1000 * heads, "seed": seed, "error": error + seed / 10}
    for task, kind, heads, error in (
        ("filters k=4", "IHA", 2, 0.1), ("filters k=4", "MHA", 1, 0.8), ("filters k=4", "MHA", 4, 0.0),
        ("cpm3 N=8", "MHA", 1, 0.3),
    )
    for seed in (0, 1)
]  # fmt: skip
RECORD = Record("learned", "iha verify --train", {}, 0, {}, {}, None, "2026-01-01T00:00:00+00:00", 1.0, RUNS)


def test_one_row_per_model_with_every_seed() -> None:
    assert learned_table(RECORD).rows == [
        ["filters k=4", "IHA, P = 2", "2", "2,000", "0.100  0.200"],
        ["filters k=4", "MHA", "1", "1,000", "0.800  0.900"],
        ["filters k=4", "MHA", "4", "4,000", "0.000  0.100"],
        ["cpm3 N=8", "MHA", "1", "1,000", "0.300  0.400"],
    ]


def test_a_task_that_only_one_mechanism_learned_is_drawn_too(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    assert [path.name for path in draw_learned(RECORD, tmp_path)] == ["learned.png", "learned.svg"]
    assert "<!-- CPM-3, N = 8 -->" in (tmp_path / "learned.svg").read_text()
