"""Parts of a page: text is escaped, commands can be copied, charts inside details are found."""

import pytest

from iha.records import Table
from iha.report.page.section import Chart, Details, Figure, Missing, Section, Text, inline


def chart(id: str = "curve") -> Chart:
    return Chart(id, "A <title>", {}, 'what "it" shows', "iha synth 'a & b'", log_axes=("x", "y"))


def test_code_and_bold_are_markup_and_nothing_else_is():
    assert inline("`a < b` & **c** <b>d</b>") == ("<code>a &lt; b</code> &amp; <strong>c</strong> &lt;b&gt;d&lt;/b&gt;")


def test_a_chart_is_described_and_can_be_repeated():
    html = chart().html()
    assert "<figcaption>A &lt;title&gt;</figcaption>" in html
    assert 'aria-label="what &quot;it&quot; shows"' in html
    assert 'data-chart="curve" data-log="x y"' in html
    assert "<code>iha synth &#x27;a &amp; b&#x27;</code>" in html
    assert 'class="copy"' in html


@pytest.mark.parametrize("id", ["Two", "two words", "1st", "", "a_b"])
def test_bad_names_are_refused(id):
    with pytest.raises(ValueError, match="lower-case words joined by hyphens"):
        chart(id)


def test_a_section_holds_its_parts_in_order():
    section = Section("a", "A & B")
    section.paragraph("first")
    section.add(Text("<p>second</p>"), Missing("third", "iha verify"))
    html = section.html()
    assert html.startswith('<section id="a" aria-labelledby="a-title"><h2 id="a-title">A &amp; B</h2>')
    assert html.index("first") < html.index("second") < html.index("Not run: third.")


def test_charts_in_details_are_charts_of_the_section():
    table = Table("t", ["x"])
    section = Section("a", "A", [chart("one"), Details("more", (chart("two"), Figure(table, "iha flops")))])
    assert [found.id for found in section.charts] == ["one", "two"]
    assert "<details><summary>more</summary>" in section.html()


def test_a_table_can_be_scrolled_and_repeated():
    table = Table("A <table>", ["x"])
    table.add([1])
    html = Figure(table, "iha flops").html()
    assert 'aria-label="A &lt;table&gt;"' in html
    assert 'tabindex="0"' in html
    assert "<code>iha flops</code>" in html
