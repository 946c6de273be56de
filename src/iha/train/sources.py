"""Where documents come from. A source is cut into parts that can be read, and prepared, independently of each other."""

import glob
import gzip
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from iha.train.chat import conversation
from iha.train.puzzles import PUZZLES, generate
from iha.train.recipe import Source
from iha.train.segments import Segment, Segments, plain

PARTS = 256  # of a large source; a small one has fewer, a huge one more
PART_BYTES = 4 << 20, 256 << 20  # of input: at least, at most
PART_ROWS = 10_000, 1_000_000


@dataclass(frozen=True)
class Part:
    """Something a worker can read by itself: files, or a range (bytes, rows, indices) of one."""

    paths: tuple[str, ...] = ()
    start: int = 0
    stop: int = 0


def parts(source: Source) -> list[Part]:
    """The same list on every machine that has the same files: part i becomes shard i."""
    match source.kind:
        case "stdlib":
            return _grouped(standard_library())
        case "text":
            return _grouped(_files(source))
        case "jsonl":
            files = _files(source)
            size = _part_size(sum(path.stat().st_size for path in files), PART_BYTES)
            return [part for path in files for part in _byte_ranges(path, size)]
        case "parquet":
            return [part for path in _files(source) for part in _row_groups(path)]
        case "huggingface":
            return _ranges(len(_dataset(source)))
        case "generated":
            if source.generator not in PUZZLES:
                known = ", ".join(PUZZLES)
                raise ValueError(f"source {source.name}: no puzzle is called {source.generator!r}; there are {known}")
            return _ranges(source.count)
    raise ValueError(f"source {source.name}: kind {source.kind!r} is not known")


def read(source: Source, part: Part, seed: int) -> Iterator[Segments]:
    """The documents of a part, in order. ValueError names source and place."""
    match source.kind:
        case "stdlib":
            yield from (plain(Path(path).read_text(encoding="utf-8", errors="replace")) for path in part.paths)
        case "text":
            yield from _text(source, part)
        case "jsonl":
            yield from (_document(source, row, where) for row, where in _json_rows(part))
        case "parquet":
            import pyarrow.parquet

            file = pyarrow.parquet.ParquetFile(part.paths[0])
            for group in range(part.start, part.stop):
                for batch in file.iter_batches(batch_size=1024, row_groups=[group]):
                    yield from (
                        _document(source, row, f"{part.paths[0]} row group {group}") for row in batch.to_pylist()
                    )
        case "huggingface":
            rows = _dataset(source).select(range(part.start, part.stop))
            yield from (_document(source, row, f"row {part.start + i}") for i, row in enumerate(rows))
        case "generated":
            yield from (_generated(source, seed, index) for index in range(part.start, part.stop))


def standard_library() -> list[Path]:
    """Python's own source: always there. Its tests and installed packages are left out."""
    skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
    found = []
    for directory, below, names in os.walk(sysconfig.get_path("stdlib")):
        below[:] = [name for name in below if name not in skipped]  # not even listed: they may hold most of the files
        found += [Path(directory, name) for name in names if name.endswith(".py")]
    return sorted(found)


def _files(source: Source) -> list[Path]:
    found = []
    for pattern in source.paths:
        matches = sorted(Path(path) for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
        if not matches:
            raise ValueError(f"source {source.name}: no file {pattern}")
        found += matches
    return found


def _grouped(files: list[Path]) -> list[Part]:
    """Small files together, whole."""
    enough = _part_size(sum(path.stat().st_size for path in files), PART_BYTES)
    groups: list[list[str]] = []
    size = enough
    for path in files:
        if size >= enough:
            groups.append([])
            size = 0
        groups[-1].append(str(path))
        size += path.stat().st_size
    return [Part(tuple(group)) for group in groups]


def _part_size(total: int, bounds: tuple[int, int]) -> int:
    return min(max(total // PARTS, bounds[0]), bounds[1])


def _ranges(total: int) -> list[Part]:
    size = _part_size(total, PART_ROWS)
    return [Part((), start, min(total, start + size)) for start in range(0, total, size)]


def _byte_ranges(path: Path, part_size: int) -> list[Part]:
    if path.suffix == ".gz":  # compressed: cannot be read from the middle
        return [Part((str(path),), 0, -1)]
    size = path.stat().st_size
    return [Part((str(path),), start, min(size, start + part_size)) for start in range(0, size, part_size)]


def _row_groups(path: Path) -> list[Part]:
    import pyarrow
    import pyarrow.parquet

    try:
        groups = pyarrow.parquet.ParquetFile(path).num_row_groups
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: not a parquet file: {error}") from error
    return [Part((str(path),), group, group + 1) for group in range(groups)]


def _text(source: Source, part: Part) -> Iterator[Segments]:
    for path in part.paths:
        try:
            with _opened(path) as file:
                lines = file if source.documents == "line" else (file.read(),)
                yield from (plain(text) for line in lines if (text := line.decode().rstrip("\n")).strip())
        except OSError as error:
            raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text: {error}") from error


def _json_rows(part: Part) -> Iterator[tuple[Any, str]]:
    """The lines that start inside the byte range, so that every line belongs to exactly one part."""
    path = part.paths[0]
    with _opened(path) as file:
        if part.start:
            file.seek(part.start - 1)
            file.readline()  # the rest of a line that started earlier
        while part.stop < 0 or file.tell() < part.stop:
            at = file.tell()
            line = file.readline()
            if not line:
                return
            if line.strip():
                try:
                    yield json.loads(line), f"{path} at byte {at}"
                except ValueError as error:
                    raise ValueError(f"{path}: the line at byte {at} is not JSON: {error}") from error


def _opened(path: str) -> IO[bytes]:
    return gzip.open(path) if path.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _document(source: Source, row: Any, where: str) -> Segments:
    if source.chat is not None:
        try:
            return conversation(row, source.chat)
        except ValueError as error:
            raise ValueError(f"source {source.name}, {where}: {error}") from error
    text = row.get(source.column) if isinstance(row, dict) else None
    if not isinstance(text, str):
        keys = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"source {source.name}, {where}: no text in column {source.column!r}; the row has {keys}")
    return plain(text)


def _generated(source: Source, seed: int, index: int) -> Segments:
    document = generate(str(source.generator), "train", seed, index)
    if not source.answers_only:
        return plain(document.text)
    return [Segment(piece.text, loss=piece.is_answer or piece.is_working) for piece in document.pieces]


def _dataset(source: Source) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ValueError("kind 'huggingface' needs the package datasets: pip install iha[train]") from error
    try:
        return datasets.load_dataset(source.dataset, source.subset, split=source.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(f"source {source.name}: dataset {source.dataset!r} cannot be loaded: {error}") from error
