"""The kinds of chart that the page uses, as Vega-Lite specifications.

Every chart: hover for the numbers, click a name in the legend to see it alone (shift-click for several).
"""

from collections.abc import Sequence
from typing import Any

# Okabe and Ito's colours: distinct under common colour blindness, and readable on light and dark backgrounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f", "#b2182b")
HEIGHT = 300
ROW = 26  # pixels of one row of dots

Row = dict[str, Any]


def lines(
    rows: Sequence[Row],
    x: str,
    y: str,
    series: str,
    *,
    x_title: str,
    y_title: str,
    facet: str | None = None,
    band: tuple[str, str] | None = None,  # columns with the lower and the upper end of a shaded band
    number: str = ".3f",
) -> dict[str, Any]:
    """One line per series, points included."""
    encoding = {
        "x": {"field": x, "type": "quantitative", "title": x_title, "scale": {"zero": False}},
        "color": _colour(rows, series),
        "opacity": _faded(),
    }
    value = {"field": y, "type": "quantitative", "title": y_title, "scale": {"zero": False}}
    tooltip = [_words(series), _number(x, x_title, "~g"), _number(y, y_title, number)]
    layers: list[dict[str, Any]] = []
    if band is not None:
        low, high = band
        ends = {"y": {"field": low, "type": "quantitative", "title": y_title, "scale": {"zero": False}}}
        layers.append({"mark": {"type": "area", "opacity": 0.15}, "encoding": ends | {"y2": {"field": high}}})
    layers.append(
        {
            "mark": {"type": "line", "point": {"size": 30}},
            "params": [_legend(series)],
            "encoding": {"y": value, "tooltip": tooltip},
        }
    )
    return _faceted({"encoding": encoding, "layer": layers}, rows, facet)


def bars(
    rows: Sequence[Row],
    category: str,
    value: str,
    *,
    title: str,
    spread: tuple[str, str] | None = None,
    group: str | None = None,
    facet: str | None = None,
    number: str = ".1f",
    zero: bool = False,
) -> dict[str, Any]:
    """Horizontal dots with their spread: they show a difference of one point, where bars from zero would look alike."""
    names = list(dict.fromkeys(row[category] for row in rows))
    y: dict[str, Any] = {
        "field": category,
        "type": "nominal",
        "title": None,
        "sort": names,
        "axis": {"labelLimit": 240},
    }
    scale = {"zero": zero}
    x = {"field": value, "type": "quantitative", "title": title, "scale": scale}
    tooltip = [_words(category), *([_words(group)] if group else []), _number(value, title, number)]
    encoding: dict[str, Any] = {"y": y}
    if group is not None:
        encoding |= {"color": _colour(rows, group), "yOffset": {"field": group, "type": "nominal"}, "opacity": _faded()}
    layers: list[dict[str, Any]] = []
    if spread is not None:
        low, high = spread
        ends = {"x": {"field": low, "type": "quantitative", "title": title, "scale": scale}, "x2": {"field": high}}
        layers.append({"mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5}, "encoding": ends})
    point: dict[str, Any] = {
        "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
        "encoding": {"x": x, "tooltip": tooltip},
    }
    if group is not None:
        point["params"] = [_legend(group)]
    # A number: Vega-Lite warns of a height by steps in a chart as wide as the window.
    groups = len({row[group] for row in rows}) if group is not None else 1
    height = ROW * len(names) * groups
    return _faceted({"encoding": encoding, "layer": [*layers, point]}, rows, facet, height)


def _colour(rows: Sequence[Row], series: str) -> dict[str, Any]:
    names = list(dict.fromkeys(row[series] for row in rows))
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(names))]
    return {
        "field": series,
        "type": "nominal",
        "title": None,
        "scale": {"domain": names, "range": colours},
        "legend": {"orient": "bottom", "columns": 3},
    }


def _legend(series: str) -> dict[str, Any]:
    return {"name": "chosen", "select": {"type": "point", "fields": [series]}, "bind": "legend"}


def _faded() -> dict[str, Any]:
    return {"condition": {"param": "chosen", "value": 1, "empty": True}, "value": 0.12}


def _words(field: str) -> dict[str, Any]:
    return {"field": field, "type": "nominal"}


def _number(field: str, title: str, number: str) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "title": title, "format": number}


def _faceted(chart: dict[str, Any], rows: Sequence[Row], facet: str | None, height: int = HEIGHT) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": list(rows)},
    }
    if facet is None:
        return whole | chart | {"width": "container", "height": height}
    names = list(dict.fromkeys(row[facet] for row in rows))
    column = {"field": facet, "type": "nominal", "title": None, "sort": names}
    return whole | {"facet": column, "columns": 2, "spec": chart | {"width": 300, "height": height}}
