"""One table, four forms, the same cells in each."""

import io
from html.parser import HTMLParser

import pytest

from iha.records import Column, Table

CELLS = [["IHA | hybrid", "1.5 %"], ["<MHA>", "–"]]


@pytest.fixture
def table():
    table = Table("Loss & more", ["model", Column("loss_a", align="right", wrap=False)])
    table.add(["IHA | hybrid", "1.5 %"])
    table.add_section("Baselines")
    table.add(["<MHA>", None])
    table.note("made by: iha test")
    return table


def test_a_row_of_another_width_is_refused(table):
    with pytest.raises(ValueError, match="2 columns, the row has 1"):
        table.add(["x"])


def test_markdown(table):
    assert table.markdown().splitlines() == [
        "**Loss & more**", "", "| model | loss_a |", "| --- | ---: |", r"| IHA \| hybrid | 1.5 % |",
        "| **Baselines** |  |", "| <MHA> | – |", "", "made by: iha test",
    ]  # fmt: skip


def test_latex_escapes(table):
    text = table.latex()
    assert r"IHA | hybrid & 1.5 \% \\" in text
    assert r"model & loss\_a \\" in text
    assert r"\multicolumn{2}{l}{\textbf{Baselines}} \\" in text
    assert r"<MHA> & -- \\" in text


def test_html_holds_the_cells(table):
    rows, texts = [], []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            texts.clear()

        def handle_data(self, data):
            texts.append(data)

        def handle_endtag(self, tag):
            if tag == "td":
                rows.append("".join(texts))

    Parser().feed(table.html())
    assert rows == [cell for row in CELLS for cell in row]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_printing_fits_the_width(table, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    table.add(["a long name that needs more than one line in a narrow terminal " * 2, "1"])
    output = io.StringIO()
    table.print(output)
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "1.5 %" in output.getvalue()
