"""The errata as a page: what `iha verify` writes as errata.md, and docs/paper-errata.md."""

from collections.abc import Iterable
from textwrap import fill
from typing import Any

from iha.theory.errata import CLASSES, HEADINGS

_INTRODUCTION = """\
# Errata of the paper

**What stands.** The theorems of arXiv 2602.21371 stand: where a proof is wrong, a corrected construction is built, run
and counted by `iha verify`. The synthetic experiments of appendix D do not come out as the paper reports at the scale
that was run here: at equal epochs 2-simplicial attention is ahead of IHA on both tasks, and IHA is within a point of
multi-head attention at eight heads and ahead of it with two or four; the paper's full protocol was not run to its end
([synthetic.md](synthetic.md)). Its language-model experiments (2.4B parameters, 240B tokens) have not been repeated.
To scale (0.4M parameters, 2M tokens) its FLOP-matched schedule has less loss on text than global attention; most of
that is due to the windows, and at equal tokens a part to pseudo-heads ([scale-model.md](scale-model.md)).

This page lists what a literal implementation would trip over, each entry with the paper's own words. Three classes are
kept apart: {counts}. "Left open" is no reproach: the paper does not say, says it with a reservation, or says less
than one may think, and a builder has to decide. Numbers are those of `iha verify`, which runs the same checks.
Theorem, definition and section numbers are those of the LaTeX source as compiled (IHA is Definition 3; Theorem 1 is MHA
on filters, 2 the superset property, 3 IHA on filters, 4 CPM-3). Formulas in quotations are written in plain characters.

Tests are in `tests/theory/`; `test_x.py::test_y` below means `tests/theory/test_x.py::test_y`. The page is made from
`src/iha/theory/errata.toml` by `iha verify --only tables --out DIR` (as `DIR/errata.md`).
"""


def markdown(errata: Iterable[dict[str, Any]]) -> str:
    """From the entries of a verify record."""
    entries = list(errata)
    classes = {kind: [e for e in entries if e["kind"] == kind] for kind in CLASSES}
    counts = ", ".join(f"{len(found)} {HEADINGS[kind]}" for kind, found in classes.items())
    parts = [_reflowed(_INTRODUCTION.format(counts=counts))]
    for kind, found in classes.items():
        parts.append(f"## {HEADINGS[kind][0].upper()}{HEADINGS[kind][1:]}: {len(found)}")
        parts += [_entry(entry) for entry in found]
    return "\n\n".join(parts) + "\n"


def _entry(entry: dict[str, Any]) -> str:
    lines = [f"### {entry['id']}. {entry['title']}", f"*{entry['where']}*"]
    lines += ["\n>\n".join(_wrapped(f"“{quote}”", "> ") for quote in entry["quotes"])]
    lines.append(_wrapped(" ".join(entry["text"].split())))
    if entry["tests"]:
        lines.append(",\n".join(f"`{test}`" for test in entry["tests"]))
    return "\n\n".join(lines)


def _reflowed(text: str) -> str:
    return "\n\n".join(p if p.startswith("#") else _wrapped(" ".join(p.split())) for p in text.strip().split("\n\n"))


def _wrapped(text: str, indent: str = "") -> str:
    options = {"break_long_words": False, "break_on_hyphens": False}
    return fill(text, 120, initial_indent=indent, subsequent_indent=indent, **options)  # type: ignore[arg-type]
