"""What a reader who builds the paper word for word should know: the entries of errata.toml, in three classes."""

import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

Class = Literal["wrong", "misprint", "open"]
CLASSES: tuple[Class, ...] = get_args(Class)
HEADINGS: dict[Class, str] = {
    "wrong": "wrong in a proof, a statement or a number",
    "misprint": "misprints",
    "open": "left open",
}


@dataclass(frozen=True)
class Erratum:
    """One finding. `quotes` are the paper's own words; `tests`, in tests/theory, show what `text` says."""

    id: str
    kind: Class
    title: str
    where: str  # in the paper
    quotes: tuple[str, ...]
    text: str
    tests: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@cache
def errata() -> dict[str, Erratum]:
    """All entries by number, in order."""
    raw = tomllib.loads(files("iha.theory").joinpath("errata.toml").read_text(encoding="utf-8"))
    entries = [
        Erratum(
            e["id"], e["class"], e["title"], e["where"], tuple(e["quotes"]), e["text"].strip(), tuple(e["tests"])
        )
        for e in raw["erratum"]
    ]  # fmt: skip
    return {entry.id: entry for entry in entries}


def of_class(kind: Class) -> list[Erratum]:
    return [entry for entry in errata().values() if entry.kind == kind]
