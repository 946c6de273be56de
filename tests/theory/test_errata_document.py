"""docs/paper-errata.md names a test for every erratum, and the tests exist."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "paper-errata.md"


def test_every_erratum_has_a_test_that_exists() -> None:
    entries = re.split(r"^\*\*(E\d+)\.", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    found = dict(zip(entries[::2], entries[1::2], strict=True))
    assert sorted(found, key=lambda e: int(e[1:])) == [f"E{i}" for i in range(1, 27)]
    for erratum, text in found.items():
        ids = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text)
        assert ids, erratum
        for file, name in ids:
            functions = {f.name for f in ast.parse((HERE / file).read_text()).body if isinstance(f, ast.FunctionDef)}
            assert name in functions, f"{erratum}: {file}::{name}"
