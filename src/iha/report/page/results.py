"""The records that a page is made from: those of this run, and the committed ones of longer runs beside them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iha.records import Record, read_json, read_record

ORIGINS = ("this run", "committed")


@dataclass(frozen=True)
class Found:
    """A record and where it comes from."""

    record: Record
    origin: str  # one of ORIGINS
    path: Path  # relative to its directory


class Results:
    """All records below two directories, by kind. Files that are not records are skipped, damaged ones raise."""

    def __init__(self, run: Path | None, committed: Path | None) -> None:
        self.found: list[Found] = []
        for origin, directory in zip(ORIGINS, (run, committed), strict=True):
            if directory is not None:
                self.found += [Found(record, origin, path) for path, record in records_below(directory)]

    def of_kind(self, kind: str, origin: str | None = None) -> list[Found]:
        """Newest first, those of this run before committed ones."""
        chosen = [found for found in self.found if found.record.kind == kind and origin in (None, found.origin)]
        newest = sorted(chosen, key=lambda found: found.record.started, reverse=True)
        return sorted(newest, key=lambda found: ORIGINS.index(found.origin))

    def best(self, kind: str) -> Found | None:
        """The one record to show: this run's if it exists, otherwise the committed one."""
        found = self.of_kind(kind)
        return found[0] if found else None


def records_below(directory: Path) -> Iterator[tuple[Path, Record]]:
    for path in sorted(directory.rglob("*.json")):
        if any(part.startswith(".") for part in path.relative_to(directory).parts):
            continue
        content = read_json(path)
        if isinstance(content, dict) and {"schema", "kind"} <= set(content):
            yield path.relative_to(directory), read_record(path)
