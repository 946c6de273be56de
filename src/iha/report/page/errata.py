"""The errata, searchable, in the paper's own words."""

from html import escape

from iha.report.page.section import Section, Text, inline
from iha.theory.errata import CLASSES, HEADINGS, Erratum, errata, of_class


def errata_section() -> Section:
    section = Section("errata", "Errata")
    counts = ", ".join(f"{len(of_class(kind))} {HEADINGS[kind]}" for kind in CLASSES)
    section.paragraph(
        f"What a reader who builds the paper word for word should know: {counts}. No theorem falls: where a proof is "
        "wrong, a corrected construction is built, run and counted."
    )
    options = "".join(f'<option value="{kind}">{escape(HEADINGS[kind])}</option>' for kind in CLASSES)
    controls = (
        '<div class="controls"><label>search <input type="search" id="errata-search"></label>'
        f'<label>class <select id="errata-class"><option value="">all</option>{options}</select></label>'
        '<span id="errata-found" role="status"></span></div>'
    )
    articles = "\n".join(_article(entry) for entry in errata().values())
    section.add(Text(f'{controls}<div class="errata">{articles}</div>'))
    return section


def _article(entry: Erratum) -> str:
    quotes = "".join(f"<blockquote>{escape(quote)}</blockquote>" for quote in entry.quotes)
    tests = ", ".join(f"<code>{escape(test)}</code>" for test in entry.tests)
    heading = f"<h3>{escape(entry.id)}. {escape(entry.title)}</h3>"
    place = f'<p class="note">{escape(entry.where)} · {escape(HEADINGS[entry.kind])}</p>'
    return (
        f'<article data-class="{entry.kind}" id="{escape(entry.id.lower())}">{heading}{place}{quotes}'
        f"<p>{inline(entry.text)}</p><p class='note'>Shown by {tests}</p></article>"
    )
