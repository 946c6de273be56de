"""The one Table: printed in a terminal, or written as Markdown, LaTeX or HTML. Cells are plain text."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import IO, Literal


@dataclass(frozen=True)
class Column:
    title: str
    align: Literal["left", "right"] = "left"
    wrap: bool = True  # False: never broken over lines, for numbers and short names


@dataclass
class Table:
    """Rows of cells under named columns, in sections with headings, with notes below."""

    title: str
    columns: Sequence[str | Column]
    rows: list[list[str] | str] = field(default_factory=list)  # a string is the heading of the section that follows
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns = [Column(column) if isinstance(column, str) else column for column in self.columns]

    def add(self, cells: Sequence[object]) -> None:
        """One row; None becomes a dash."""
        if len(cells) != len(self.columns):
            raise ValueError(f"table {self.title!r} has {len(self.columns)} columns, the row has {len(cells)}: {cells}")
        self.rows.append(["–" if cell is None else str(cell) for cell in cells])

    def add_section(self, heading: str) -> None:
        self.rows.append(heading)

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def _columns(self) -> list[Column]:
        return [column for column in self.columns if isinstance(column, Column)]

    def print(self, file: IO[str] | None = None, style: Callable[[list[str]], str] | None = None) -> None:
        """To a terminal or a pipe, in the width of the terminal or of COLUMNS. `style` names a row's rich style."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        file = sys.stdout if file is None else file
        piped = not file.isatty() and "COLUMNS" not in os.environ
        console = Console(file=file, width=120 if piped else None, highlight=False)
        table = RichTable(box=box.SIMPLE_HEAD, title=self.title, title_justify="left", pad_edge=False, padding=(0, 1))
        for column in self._columns:
            table.add_column(column.title, justify=column.align, no_wrap=not column.wrap)
        for row in self.rows:
            if isinstance(row, str):
                table.add_section()
                table.add_row(Text(row, style="bold"))
            else:
                table.add_row(*map(Text, row), style=style(row) if style else None)
        console.print(table)
        for note in self.notes:
            console.print(Text(note, style="dim"))

    def markdown(self) -> str:
        """GitHub's tables."""
        lines = [f"**{self.title}**", ""] if self.title else []
        lines.append(_bar([_markdown(column.title) for column in self._columns]))
        lines.append(_bar(["---:" if column.align == "right" else "---" for column in self._columns]))
        for row in self.rows:
            if isinstance(row, str):
                lines.append(_bar([f"**{_markdown(row)}**", *[""] * (len(self.columns) - 1)]))
            else:
                lines.append(_bar([_markdown(cell) for cell in row]))
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A `tabular` in the style of the booktabs package."""
        align = "".join("r" if column.align == "right" else "l" for column in self._columns)
        lines = [f"% {self.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
        lines += [_ampersands([_latex(column.title) for column in self._columns]), r"\midrule"]
        for row in self.rows:
            if isinstance(row, str):
                lines.append(rf"\multicolumn{{{len(self.columns)}}}{{l}}{{\textbf{{{_latex(row)}}}}} \\")
            else:
                lines.append(_ampersands([_latex(cell) for cell in row]))
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [f"% {note}" for note in self.notes]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """A `<table>` element; classes "num" for right-aligned cells, "section" for headings."""
        head = "".join(_cell("th", column.title, column, ' scope="col"') for column in self._columns)
        lines = ["<table>", f"<caption>{escape(self.title)}</caption>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
        for row in self.rows:
            if isinstance(row, str):
                heading = f'<th colspan="{len(self.columns)}" scope="rowgroup">{escape(row)}</th>'
                lines.append(f'<tr class="section">{heading}</tr>')
            else:
                cells = zip(row, self._columns, strict=True)
                lines.append("<tr>" + "".join(_cell("td", text, column) for text, column in cells) + "</tr>")
        lines += ["</tbody>", "</table>"]
        lines += [f'<p class="note">{escape(note)}</p>' for note in self.notes]
        return "\n".join(lines) + "\n"


def _bar(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", r"\|").replace("\n", " ")


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {character: "\\" + character for character in "&%$#_{}"}
_LATEX |= {"±": r"$\pm$", "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "–": "--", "Δ": r"$\Delta$", "\n": " "}


def _latex(text: str) -> str:
    return re.sub("|".join(map(re.escape, _LATEX)), lambda match: _LATEX[match.group()], text)


def _cell(tag: str, text: str, column: Column, attributes: str = "") -> str:
    number = ' class="num"' if column.align == "right" else ""
    return f"<{tag}{attributes}{number}>{escape(text)}</{tag}>"
