"""Pages are filled between their marks, from records, and nothing else of them changes."""

import pytest

from iha.records import write_record
from iha.report.scale_model_docs import compared, fill_block, tables, write_docs
from scale_model_records import measured_record, run_record

PAGE = "# Title\n\nWords.\n\n<!-- begin {name} -->\nold\n<!-- end {name} -->\n\nMore words.\n"


@pytest.fixture
def records(tmp_path):
    (tmp_path / "scale-model" / "measured").mkdir(parents=True)
    for run in [
        *(run_record(name, 0, (2.0, 1.0)) for name in ("global", "iha")),
        run_record("global", 0, (1.0,), phase="upcycle"),
        run_record("iha", 0, (0.9,), variant="P=2", phase="upcycle"),
    ]:
        write_record(tmp_path / "scale-model" / f"{run.config['name']}.json", run)
    measured = measured_record("iha", 0, retrieval={"single": {"512": 0.5}})
    write_record(tmp_path / "scale-model" / "measured" / "pretrain-iha-s0.json", measured)
    return tmp_path / "scale-model"


def test_tables_by_their_page(records):
    shown = tables(records, compared(records))
    titles = {block: [table.title for table in found] for block, found in shown.items()}
    assert titles["upcycling"][-1] == "Scale model, upcycle: variants"
    assert "Retrieval by length after pretrain, %" in titles["scale-model"]
    assert not any("upcycle" in title for title in titles["scale-model"])


def test_another_size_has_blocks_and_pictures_of_its_own(records, tmp_path, monkeypatch):
    monkeypatch.setattr("iha.report.scale_model_docs.write_figures", lambda charts, directory: [directory])
    other, docs = tmp_path / "scale-model-medium", tmp_path / "docs"
    other.mkdir()
    docs.mkdir()
    for name, losses in (("global", (2.0, 0.8)), ("iha", (2.0, 0.7))):
        run = run_record(name, 0, losses)
        write_record(other / f"{run.config['name']}.json", run)
    names = ("scale-model-medium", "scale-model-medium-summary", "scale-model")
    (docs / "scale-model.md").write_text("".join(PAGE.format(name=name) for name in names))
    written = write_docs(other, docs)  # needs no conversion.md: nothing was converted
    assert written == [docs / "scale-model.md", docs / "figures" / "scale-model-medium"]
    before, kept = (docs / "scale-model.md").read_text().split("<!-- begin scale-model -->")
    assert "-0.1000" in before  # to the run of global attention beside it, not to that of the other size at 1.0
    assert "figures/scale-model-medium/" in before
    assert kept.startswith("\nold\n")


def test_pages_are_filled_twice_alike(records, tmp_path, monkeypatch):
    def drawn(charts, directory):  # that charts can be drawn is tested with the page; it takes seconds
        paths = [directory / f"{chart.id}.svg" for chart in charts]
        for path in paths:
            path.write_text("<svg/>")
        return paths

    monkeypatch.setattr("iha.report.scale_model_docs.write_figures", drawn)
    docs = tmp_path / "docs"
    docs.mkdir()
    for page, name in (("scale-model.md", "scale-model"), ("conversion.md", "upcycling")):
        (docs / page).write_text(PAGE.format(name=name))
    with (docs / "scale-model.md").open("a") as page:
        page.write("<!-- begin scale-model-summary --><!-- end scale-model-summary -->\n")
    written = write_docs(records, docs)
    first = (docs / "conversion.md").read_text()
    assert first.startswith("# Title\n\nWords.\n")
    assert first.endswith("\n\nMore words.\n")
    assert "-0.1000" in first
    assert "old" not in first
    text = (docs / "scale-model.md").read_text()
    assert "| global | 1 |" in text.partition("begin scale-model-summary")[2]
    pictures = [path for path in written if path.suffix == ".svg"]
    assert pictures
    assert all(path.is_file() and (path.name in text or path.name in first) for path in pictures)
    write_docs(records, docs)
    assert (docs / "conversion.md").read_text() == first


def test_a_page_without_a_place_is_refused(tmp_path):
    (tmp_path / "page.md").write_text("# Title\n")
    with pytest.raises(ValueError, match="has no place for it: <!-- begin upcycling -->"):
        fill_block(tmp_path / "page.md", "upcycling", "text")
    with pytest.raises(ValueError, match="has no record of a run"):
        compared(tmp_path)
