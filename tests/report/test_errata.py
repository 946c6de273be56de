"""docs/paper-errata.md is the page made from errata.toml."""

from pathlib import Path

from iha.report.errata import markdown
from iha.theory.errata import HEADINGS, errata, of_class

DOCUMENT = Path(__file__).parents[2] / "docs" / "paper-errata.md"


def page() -> str:
    return markdown([entry.as_json() for entry in errata().values()])


def test_the_document_is_up_to_date() -> None:
    """To renew it: `iha verify --only tables --out DIR`, and copy DIR/errata.md."""
    assert DOCUMENT.read_text(encoding="utf-8") == page()


def test_classes_are_counted_separately() -> None:
    text = page()
    for kind, heading in HEADINGS.items():
        assert f"{len(of_class(kind))} {heading}" in " ".join(text.split())
        section = text.split(f"\n## {heading[0].upper()}{heading[1:]}: ")[1].split("\n## ")[0]
        assert section.count("\n### E") == len(of_class(kind))


def test_every_entry_shows_its_quotation() -> None:
    flat = " ".join(page().replace("\n> ", " ").split())
    for entry in errata().values():
        assert f"### {entry.id}. {entry.title}" in page()
        for quote in entry.quotes:
            assert f"“{' '.join(quote.split())}”" in flat
