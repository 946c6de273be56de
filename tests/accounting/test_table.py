"""What `iha flops` answers: rows agree with the functions they come from."""

from pathlib import Path

import pytest

from iha.accounting import AttentionShape, layer_flops
from iha.accounting.table import Question, answer, record
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec
from iha.records import read_record, write_record

PAGE = Path(__file__).parents[2] / "docs" / "accounting.md"
PAPER = Question(AttentionShape(2560, 20), 8192)


def test_every_mechanism_has_a_row() -> None:
    found = answer(PAPER)
    assert {row.mechanism for row in found.layers} == set(MECHANISMS)
    for row in found.layers:
        spec = LayerSpec(row.mechanism, row.window, row.num_pseudo_heads if row.mechanism == "iha" else 1)
        assert row.flops == layer_flops(PAPER.shape, spec, 8192)


def test_both_conventions_are_shown() -> None:
    row = next(row for row in answer(PAPER).schedules if row.schedule == "iha, the pattern once")
    assert row.attention_to_global["paper"] == pytest.approx(3 / 5, abs=1e-12)
    assert row.attention_to_global["causal"] == pytest.approx(1, abs=1e-12)
    assert row.attention_to_global["exact"] == pytest.approx(1 - 1 / 20, abs=1e-3)


@pytest.mark.parametrize(
    ("P", "window", "attention", "with_mixing", "with_projections"),
    [
        (2, 1024, 0.950, 0.962, 0.983),
        (4, 256, 0.987, 1.011, 1.005),
        (8, 64, 0.997, 1.044, 1.020),
        (20, 10, 0.981, 1.100, 1.044),
    ],
)
def test_the_mixing_shares_of_the_page(
    P: int, window: int, attention: float, with_mixing: float, with_projections: float
) -> None:
    """docs/accounting.md, the table by P."""
    found = answer(Question(PAPER.shape, 8192, P, num_layers=5, schedule="iha"))
    row = found.schedules[-1]
    assert found.local_window == window
    ratios = (row.attention_to_global["exact"], row.with_mixing, row.with_projections)
    assert tuple(round(ratio, 3) for ratio in ratios) == (attention, with_mixing, with_projections)
    line = f"| {P} | {window} | {attention:.3f} | {with_mixing:.3f} | {with_projections:.3f} |"
    assert line in PAGE.read_text(encoding="utf-8")


def test_twice_the_window_is_not_what_the_papers_count_says() -> None:
    for P in (2, 4):
        row = answer(Question(PAPER.shape, 8192, P, num_layers=5, match="paper")).schedules[2]
        assert row.attention_to_global["paper"] == pytest.approx(1, abs=1e-9)
        assert row.attention_to_global["exact"] == pytest.approx((4 * (2 - 1 / P**2) + 1) / 5, rel=1e-3)


def test_a_matched_window_is_used() -> None:
    found = answer(Question(PAPER.shape, 8192, 2, match="exact"))
    assert found.local_window == found.matches[3].match.window == 1097
    assert found.layers[3].window == 1097


def test_heads_that_some_mechanisms_refuse_leave_those_out() -> None:
    found = answer(Question(AttentionShape(96, 3), 256))
    left_out = set(MECHANISMS) - {row.mechanism for row in found.layers}
    assert left_out == {"differential", "multi_token", "paired_heads"}
    assert "differential" not in [row.schedule for row in found.schedules]


def test_unequal_numbers() -> None:
    shape = AttentionShape(2560, 20, causal="token")
    found = answer(Question(shape, 8192, 1, num_pseudo_keys=4))
    assert found.local_window == 1024
    rows = [row for row in found.layers if row.mechanism == "iha"]
    assert [(row.num_pseudo_heads, row.num_pseudo_keys, row.patterns_per_head) for row in rows] == [(1, 4, 4)] * 2
    schedule = next(row for row in found.schedules if row.schedule == "iha")
    assert "iha, window 1024, P = 1 × 4" in schedule.layers
    assert schedule.attention_to_global["causal"] == pytest.approx(1, abs=1e-3)
    with pytest.raises(ValueError, match=r"causal='virtual' .* got 1 and 4"):
        answer(Question(PAPER.shape, 8192, 1, num_pseudo_keys=4))


def test_no_window_at_all_is_shown_as_none() -> None:
    found = answer(Question(AttentionShape(64, 4), 64, 16, window=4))
    assert all(row.match is None for row in found.matches[2:])
    assert all(row.match is not None for row in answer(PAPER).matches)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_tokens": 0}, "num_tokens must be at least 1, got 0"),
        ({"match": "half"}, "'half'"),
        ({"match": "exact", "window": 4}, "window=4"),
        ({"window": 0}, "got 0"),
        ({"num_pseudo_heads": 0}, "got 0"),
        ({"num_layers": 0}, "got 0"),
        ({"element_size": 0}, "got 0"),
        ({"schedule": "round_robin"}, "'round_robin'"),
        ({"num_pseudo_heads": 100}, "100 pseudo-heads"),
        ({"schedule": "differential", "shape": AttentionShape(96, 3)}, "num_heads=3"),
    ],
    ids=str,
)
def test_bad_input_is_named(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        answer(Question(**{"shape": AttentionShape(64, 4), "num_tokens": 256, **options}))


def test_the_record_survives_its_file(tmp_path: Path) -> None:
    found = record(PAPER, "iha flops")
    write_record(tmp_path / "flops.json", found)
    read = read_record(tmp_path / "flops.json", "flops")
    assert read.config["num_tokens"] == read.results["question"]["num_tokens"] == 8192
    assert read.results["matches"][3]["match"]["window"] == 1097
