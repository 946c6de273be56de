"""errata.toml: complete, in three classes, each entry with the paper's words and tests that exist."""

import ast
import re
from pathlib import Path

import pytest

from iha.theory.errata import CLASSES, errata, of_class

HERE = Path(__file__).parent
PAPER = HERE.parents[2] / "shared" / "paper.tex"


def test_numbers_are_consecutive_and_classes_are_the_three() -> None:
    assert list(errata()) == [f"E{i}" for i in range(1, len(errata()) + 1)]
    assert {entry.kind for entry in errata().values()} == set(CLASSES)
    assert sum(len(of_class(kind)) for kind in CLASSES) == len(errata())


@pytest.mark.parametrize("entry", errata().values(), ids=lambda entry: entry.id)
def test_every_entry_quotes_the_paper_and_names_tests_that_exist(entry) -> None:
    assert entry.quotes
    assert all(quote.strip() for quote in entry.quotes)
    assert entry.tests or entry.id == "E28"  # a question of wording
    for test in entry.tests:
        file, name = test.split("::")
        functions = {f.name for f in ast.parse((HERE / file).read_text()).body if isinstance(f, ast.FunctionDef)}
        assert name in functions, test


@pytest.mark.parametrize("erratum", ["E5", "E8", "E11", "E21", "E23", "E25", "E26", "E27"])
def test_what_the_paper_does_not_claim_is_not_counted_as_wrong(erratum) -> None:
    """Padding, N² pairs, ties, constants, temperatures, one head, patterns, P = 20, virtual RoPE."""
    assert errata()[erratum].kind == "open"


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's LaTeX source is not part of the project")
@pytest.mark.parametrize("entry", errata().values(), ids=lambda entry: entry.id)
def test_quotations_are_the_papers_words(entry) -> None:
    """Formulas are compared loosely: LaTeX is stripped to its letters, and runs of words must be found."""
    paper = _letters(PAPER.read_text())
    for quote in entry.quotes:
        runs: list[list[str]] = [[]]
        for word in quote.split():
            if word.isascii() and word.strip(",.;:()").replace("-", "").isalpha() and _is_prose(word):
                runs[-1].append(word)
            else:
                runs.append([])
        for words in runs:
            if len(words) >= 3:
                assert _letters(" ".join(words)) in paper, f"{entry.id}: {' '.join(words)!r}"


def _is_prose(word: str) -> bool:
    """Not a symbol, and not the name of a cross-reference."""
    return len(word.strip(",.;:()")) > 1 and word not in ("Algorithm", "Definition")


def _letters(text: str) -> str:
    text = re.sub(r"\\citep?\{[^}]*\}", "", text)
    text = re.sub(r"\\(emph|textbf|textit|texttt|autoref|mathrm|text)\b", "", text)
    return "".join(character for character in text.lower() if character.isalpha())
