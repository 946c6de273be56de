"""The one envelope of every result file."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iha.records import host
from iha.records.files import read_json, write_json

SCHEMA = 1  # increased when a field changes its meaning


@dataclass(frozen=True)
class Record:
    """What was run, by which command and code, where, for how long, and what came out."""

    kind: str  # what the results are, e.g. "attention-bench"; decides their layout
    command: str  # that repeats it, as typed; the cli passes it down
    config: dict[str, Any]  # everything that decides the outcome
    seed: int | None
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    started: str  # UTC, ISO 8601
    seconds: float = 0.0  # of wall-clock time, all sessions of a resumed run together
    results: Any = None
    schema: int = SCHEMA

    @classmethod
    def new(cls, kind: str, *, command: str, config: Mapping[str, Any], seed: int | None = None) -> "Record":
        """A record that starts now, on this machine, without results yet."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        facts = host.describe_machine(), host.describe_versions(), host.commit()
        return cls(kind, command, dict(config), seed, *facts, started)

    def finished(self, results: Any, seconds: float | None = None) -> "Record":
        """The record with its results. `seconds` is the time since `new`, unless a resumed run passes its own total."""
        if seconds is None:
            seconds = time.time() - datetime.fromisoformat(self.started).timestamp()
        return replace(self, results=results, seconds=round(seconds, 3))


def write_record(path: Path, record: Record) -> None:
    content = asdict(record)
    write_json(path, {"schema": content.pop("schema"), **content})


def read_record(path: Path, kind: str | None = None) -> Record:
    """A record from its file. ValueError names the file when it is damaged, of another kind or from later code."""
    content = read_json(path)
    names = {field.name for field in fields(Record)}
    if not isinstance(content, dict) or set(content) != names:
        found = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{path} is not a record of iha: expected the fields {sorted(names)}, found {found}")
    if content["schema"] != SCHEMA:
        raise ValueError(f"{path} has schema {content['schema']!r}; this version of iha reads {SCHEMA}")
    if kind is not None and content["kind"] != kind:
        raise ValueError(f"{path} holds {content['kind']!r}, not {kind!r}")
    return Record(**content)
