"""The whole report: every section in order, from whatever records there are."""

import re

import pytest

pytest.importorskip("vl_convert")

from iha.records import Record, write_record
from iha.report.page.report import write_report
from iha.version import __version__

SECTIONS = [
    "verdicts", "explorer", "theory", "synthetic", "language-model", "tables", "paper-scale", "cost", "speed", "errata",
]  # fmt: skip


def test_without_records_everything_that_needs_them_is_named(tmp_path):
    path = write_report(tmp_path / "out", None, None, figures=False)
    html = path.read_text()
    found = re.findall(r'<section id="([a-z-]+)"', html)
    assert found == SECTIONS
    links = re.findall(r'<a href="#([a-z-]+)">', html.partition("<section")[0])
    assert links == found
    assert f"iha {__version__}. 0 records." in html
    assert html.count("Not run: ") >= 5
    assert not (tmp_path / "out" / "figures").exists()


def test_records_are_counted(tmp_path):
    (tmp_path / "run").mkdir()
    write_record(tmp_path / "run" / "x.json", Record.new("something", command="iha", config={}).finished({}))
    html = write_report(tmp_path / "out", tmp_path / "run", None, figures=False).read_text()
    assert "1 records." in html
