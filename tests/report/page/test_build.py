"""The page as text: complete, self-contained, small, and the same data as figures."""

import json
import re

import pytest

from iha.report.page.build import build_page, write_figures
from iha.report.page.charts import lines
from iha.report.page.section import Chart, Section


def chart(id="curve"):
    rows = [{"x": x, "y": x * x, "series": "a"} for x in range(4)]
    return Chart(id, "Squares", lines(rows, "x", "y", "series", x_title="x", y_title="y"), "squares", "iha test")


def test_the_page_is_small_and_loads_nothing(page):
    assert len(page.encode()) < 5e6
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", markup)
    assert "@import" not in markup
    assert not re.findall(r"url\((?!data:)", markup)


def test_a_script_cannot_be_ended_by_its_data():
    section = Section("a", "A")
    spec = lines(
        [{"x": 1, "y": 1, "series": "</script><script>alert(1)//<!--"}], "x", "y", "series", x_title="", y_title=""
    )
    section.add(Chart("curve", "", spec, "", ""))
    html = build_page([section], lead="", footer="")
    data = re.search(r'id="data">(.*?)</script>', html, flags=re.DOTALL)[1]
    assert "alert(1)" in data
    assert json.loads(data)["charts"]["curve"] == spec


def test_two_charts_of_one_name_are_refused():
    section = Section("a", "A", [chart(), chart()])
    with pytest.raises(ValueError, match=r"share an id: .*curve"):
        build_page([section], lead="", footer="")


def test_a_bad_name_is_refused():
    with pytest.raises(ValueError, match="got 'Two words'"):
        chart("Two words")


def test_figures_are_drawn_from_the_same_specification(tmp_path):
    written = write_figures([chart()], tmp_path)
    assert [path.name for path in written] == ["curve.svg", "curve.png"]
    assert (tmp_path / "curve.svg").read_text().count("<path") > 4
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
