"""Every erratum is on the page once, escaped, with its class, its place and its tests."""

import re
from html import escape, unescape

from iha.report.page.errata import errata_section
from iha.theory.errata import CLASSES, HEADINGS, errata, of_class


def test_every_erratum_is_there_once():
    html = errata_section().html()
    articles = re.findall(r'<article data-class="(\w+)" id="(\w+)">(.*?)</article>', html, flags=re.DOTALL)
    assert [name for _, name, _ in articles] == [entry.id.lower() for entry in errata().values()]
    for (kind, _, body), entry in zip(articles, errata().values(), strict=True):
        assert kind == entry.kind
        assert escape(entry.title) in body
        assert [unescape(quote) for quote in re.findall(r"<blockquote>(.*?)</blockquote>", body, re.DOTALL)] == list(
            entry.quotes
        )
        for test in entry.tests:
            assert f"<code>{escape(test)}</code>" in body


def test_the_classes_are_counted_and_can_be_chosen():
    html = errata_section().html()
    for kind in CLASSES:
        assert f"{len(of_class(kind))} {HEADINGS[kind]}" in unescape(html)
        assert f'<option value="{kind}">' in html
    assert sum(len(of_class(kind)) for kind in CLASSES) == len(errata())
