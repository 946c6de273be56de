"""What a page is made of: sections of paragraphs, tables, charts, and notes about what is missing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from iha.records import Table


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart. The page draws it, and the same specification gives PNG and SVG for papers."""

    id: str  # of its element, and of its files
    title: str
    spec: dict[str, Any]
    alt: str  # what it shows, in words, for those who cannot see it
    command: str  # that makes the data
    log_axes: tuple[str, ...] = ()  # "x", "y": axes that the reader may switch to a logarithm

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.id):
            raise ValueError(f"a chart's id must be lower-case words joined by hyphens, got {self.id!r}")

    def html(self) -> str:
        axes = " ".join(self.log_axes)
        return (
            f'<figure class="chart" id="{self.id}"><figcaption>{escape(self.title)}</figcaption>'
            f'<div class="plot" data-chart="{self.id}" data-log="{axes}" role="img" aria-label="{escape(self.alt)}">'
            f"</div>{repeat(self.command)}</figure>"
        )


@dataclass(frozen=True)
class Missing:
    """A result that was not made, and how to make it."""

    what: str
    command: str

    def html(self) -> str:
        return f'<div class="missing"><p>Not run: {escape(self.what)}.</p>{repeat(self.command)}</div>'


@dataclass(frozen=True)
class Text:
    """Paragraphs as HTML, escaped by whoever writes them."""

    html_text: str

    def html(self) -> str:
        return self.html_text


@dataclass(frozen=True)
class Figure:
    """A table of records, with the command that repeats it."""

    table: Table
    command: str

    def html(self) -> str:
        scrolls = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(self.table.title)}">'
        return f'<div class="table">{scrolls}{self.table.html()}</div>{repeat(self.command)}</div>'


@dataclass(frozen=True)
class Details:
    """Parts that are shown when the reader asks for them."""

    summary: str
    parts: "tuple[Part, ...]"

    def html(self) -> str:
        body = "\n".join(part.html() for part in self.parts)
        return f"<details><summary>{escape(self.summary)}</summary>\n{body}\n</details>"


Part = Chart | Missing | Text | Figure | Details


@dataclass
class Section:
    id: str
    title: str
    parts: list[Part] = field(default_factory=list)

    def add(self, *parts: Part) -> None:
        self.parts += parts

    def paragraph(self, text: str) -> None:
        """Plain text; `code` in backticks."""
        self.parts.append(Text(f"<p>{inline(text)}</p>"))

    def html(self) -> str:
        body = "\n".join(part.html() for part in self.parts)
        heading = f'<h2 id="{self.id}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.id}" aria-labelledby="{self.id}-title">{heading}\n{body}\n</section>'

    @property
    def charts(self) -> Sequence[Chart]:
        nested = [part for details in self.parts if isinstance(details, Details) for part in details.parts]
        return [part for part in (*self.parts, *nested) if isinstance(part, Chart)]


def inline(text: str) -> str:
    """Escaped, with `code` and **bold** of Markdown."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def repeat(command: str) -> str:
    """How to make this again, with a button that copies it."""
    return (
        f'<div class="repeat"><code>{escape(command)}</code>'
        f'<button type="button" class="copy" aria-label="Copy the command">copy</button></div>'
    )
