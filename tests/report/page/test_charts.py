"""Charts as Vega-Lite: valid by Altair's own schema, with the data, order and spread that they were given."""

import pytest

from iha.report.page.charts import COLOURS, bars, lines

ROWS = [
    {"model": model, "x": x, "y": x * factor, "low": 0, "high": 9, "task": task}
    for model, factor in (("IHA", 2), ("MHA", 1)) for task in ("one", "two") for x in (1, 2)
]  # fmt: skip
CHARTS = {
    "lines": lines(ROWS, "x", "y", "model", x_title="epoch", y_title="accuracy"),
    "band": lines(ROWS, "x", "y", "model", x_title="epoch", y_title="accuracy", band=("low", "high")),
    "facets": lines(ROWS, "x", "y", "model", x_title="epoch", y_title="accuracy", facet="task"),
    "bars": bars(ROWS, "model", "y", title="accuracy"),
    "spread": bars(ROWS, "model", "y", title="accuracy", spread=("low", "high"), group="task"),
    "bar facets": bars(ROWS, "model", "y", title="accuracy", facet="task"),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_valid_and_holds_its_rows(name):
    altair = pytest.importorskip("altair")
    altair.Chart.from_dict(CHARTS[name])  # raises where the schema is violated
    assert CHARTS[name]["data"]["values"] == ROWS


def test_colours_follow_the_order_of_the_rows_and_repeat():
    scale = CHARTS["lines"]["encoding"]["color"]["scale"]
    assert scale == {"domain": ["IHA", "MHA"], "range": list(COLOURS[:2])}
    many = [{"s": f"{i}", "x": 0, "y": 0} for i in range(len(COLOURS) + 2)]
    repeated = lines(many, "x", "y", "s", x_title="", y_title="")["encoding"]["color"]["scale"]["range"]
    assert repeated == [*COLOURS, *COLOURS[:2]]


def test_a_band_lies_behind_its_line():
    area, line = CHARTS["band"]["layer"]
    assert (area["encoding"]["y"]["field"], area["encoding"]["y2"]["field"]) == ("low", "high")
    assert line["mark"]["type"] == "line"
    assert len(CHARTS["lines"]["layer"]) == 1


def test_bars_keep_the_order_and_the_spread_of_the_rows():
    spec = CHARTS["spread"]
    assert spec["encoding"]["y"]["sort"] == ["IHA", "MHA"]
    rule, point = spec["layer"]
    assert (rule["encoding"]["x"]["field"], rule["encoding"]["x2"]["field"]) == ("low", "high")
    assert point["encoding"]["x"]["field"] == "y"


def test_facets_are_side_by_side_in_order():
    for name in ("facets", "bar facets"):
        assert CHARTS[name]["facet"]["sort"] == ["one", "two"]
        assert CHARTS[name]["columns"] == 2
    assert CHARTS["lines"]["width"] == "container"
