"""Builds one file from sections. Styles, scripts, the chart library and all data are inline; nothing is loaded."""

import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from iha.records import write_bytes, write_text
from iha.report.page.section import Chart, Section

TITLE = "Interleaved Head Attention: does the paper hold?"
# What the page draws its charts with. One bundle of Vega, Vega-Lite and vega-embed.
LIBRARY_CODE = "window.vegaEmbed = vegaEmbed;"


def build_page(sections: Sequence[Section], *, lead: str, footer: str, explorer: dict[str, Any] | None = None) -> str:
    """`lead` and `footer` are HTML."""
    charts = [chart for section in sections for chart in section.charts]
    ids = [chart.id for chart in charts]
    if len(set(ids)) != len(ids):
        raise ValueError(f"two charts share an id: {sorted(id for id in ids if ids.count(id) > 1)}")
    links = (f'<li><a href="#{section.id}">{escape(section.title)}</a></li>' for section in sections)
    return Template(_asset("page.html")).substitute(
        title=escape(TITLE),
        style=_asset("page.css"),
        lead=lead,
        navigation="".join(links),
        sections="\n".join(section.html() for section in sections),
        footer=footer,
        data=_json({"charts": {chart.id: chart.spec for chart in charts}, "explorer": explorer}),
        library=_inside_script(chart_library()) if charts else "",
        script=_inside_script(_asset("page.js") + _asset("explorer.js")),
    )


@cache
def chart_library() -> str:
    """The JavaScript that draws Vega-Lite charts, from the package that also draws them as PNG and SVG."""
    import vl_convert

    return vl_convert.javascript_bundle(LIBRARY_CODE)


def write_figures(charts: Sequence[Chart], directory: Path) -> list[Path]:
    """PNG and SVG of every chart, for papers, from the specification that the page draws."""
    import vl_convert

    written = []
    for chart in charts:
        svg, png = directory / f"{chart.id}.svg", directory / f"{chart.id}.png"
        # On the page a chart is as wide as the window; a file needs a fixed width.
        spec = json.dumps(chart.spec | ({"width": 560} if chart.spec.get("width") == "container" else {}))
        write_text(svg, vl_convert.vegalite_to_svg(spec))
        write_bytes(png, vl_convert.vegalite_to_png(spec, scale=2))
        written += [svg, png]
    return written


def _asset(name: str) -> str:
    return (files("iha.report.page") / "assets" / name).read_text(encoding="utf-8")


def _json(content: object) -> str:
    """JSON without any `<`: a script element ends at the first `</script`, even inside a string."""
    return json.dumps(content, ensure_ascii=False).replace("<", r"\u003c")


def _inside_script(text: str) -> str:
    """JavaScript with everything escaped that would end its element. In strings and patterns the meaning stays."""
    return re.sub("</(script)", r"<\\/\1", text, flags=re.IGNORECASE).replace("<!--", r"<\!--")
