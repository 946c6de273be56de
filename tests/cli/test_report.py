"""`iha report`: which records the page is drawn from."""

import pytest

from cli.calls import assert_refused, iha


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    calls = []

    def write_report(out, run, committed, figures):
        calls.append((run and run.name, committed and committed.name, figures))
        (out / "report.html").write_text("page")
        return out / "report.html"

    monkeypatch.setattr("iha.report.page.report.write_report", write_report)
    return calls


def test_a_run_beside_the_committed_records(drawn, tmp_path):
    for name in ("out", "kept", "results"):
        (tmp_path / name).mkdir()
    assert iha("report", "out", "--committed", "kept", "--no-figures", "--out", "page").exit_code == 0
    result = iha("report", "--out", "page")
    assert result.exit_code == 0, result.output
    assert "wrote page/report.html" in result.output
    assert drawn == [("out", "kept", False), (None, "results", True)]  # those of the checkout, where it is one


def test_without_a_checkout_there_are_none(drawn):
    iha("report", "--out", "page")
    assert drawn == [(None, None, True)]


def test_what_is_no_directory_is_refused(drawn, tmp_path):
    (tmp_path / "file").touch()
    assert_refused(iha("report", "file", "--out", "page"), "file is not a directory")
    assert_refused(iha("report", "--committed", "gone", "--out", "page"), "gone is not a directory")
    assert not drawn
