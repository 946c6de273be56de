"""The tables of `iha flops`: the page shows them, they fit a terminal, and numbers are short."""

import io
from pathlib import Path

import pytest

from iha.accounting import AttentionShape
from iha.accounting.table import Question, record
from iha.report.flops import count, markdown, size, tables

PAGE = Path(__file__).parents[2] / "docs" / "accounting.md"
PAPER = record(Question(AttentionShape(2560, 20), 8192), "iha flops")


def test_the_page_shows_what_the_command_prints() -> None:
    """To renew it: `iha flops --out DIR`, and DIR/flops.md between the two marks."""
    page = PAGE.read_text(encoding="utf-8")
    shown = page.split("<!-- begin: iha flops -->\n")[1].split("<!-- end: iha flops -->")[0]
    assert shown.strip() == markdown(PAPER).strip()


@pytest.mark.parametrize("width", [80, 120])
def test_no_name_and_no_number_is_cut(width, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for table in tables(PAPER):
        file = io.StringIO()
        table.print(file)
        text = file.getvalue()
        assert "…" not in text, table.title
        assert max(map(len, text.splitlines())) <= width


def test_a_window_that_does_not_exist_is_none() -> None:
    found = record(Question(AttentionShape(64, 4), 64, 16, window=4), "iha flops")
    assert [row[3] for row in tables(found)[4].rows[2:]] == ["none"] * 3


def test_an_obstacle_to_flash_is_said_once_per_mechanism() -> None:
    notes = [note for note in tables(PAPER)[1].notes if note.startswith("no flash kernel for ")]
    named = [note.removeprefix("no flash kernel for ").split(":")[0] for note in notes]
    assert sorted(named) == ["multi_token", "simplicial", "strassen", "talking_heads"]


def test_numbers_for_people() -> None:
    assert [count(n) for n in (0, 999, 1234, 26_214_400, 343_639_654_400)] == ["0", "999", "1.23 k", "26.2 M", "344 G"]
    assert [size(n) for n in (None, 512, 80 << 20, 3 << 29)] == ["none", "512 B", "80.0 MiB", "1.50 GiB"]
