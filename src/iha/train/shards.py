"""Token shards on disk: one flat array of tokens, where documents end, and which tokens are predicted.

00007.train.tokens   uint16, or uint32 for vocabularies above 65536
00007.train.ends     int64, one per document: where it ends
00007.train.loss     uint8 per token; only where some tokens are not predicted
00007.json           written last: a shard without it does not exist
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from iha.records import read_json, write_json
from iha.train.tokenise import Encoded

SPLITS = ("train", "validation")


class ShardWriter:
    """Writes one split of one shard, document by document."""

    def __init__(self, stem: Path, dtype: str) -> None:
        self.stem, self.dtype = stem, dtype
        self.files: dict[str, IO[bytes]] = {
            suffix: Path(f"{stem}.{suffix}").open("wb")  # noqa: SIM115 (until close)
            for suffix in ("tokens", "ends", "loss")
        }
        self.tokens = self.documents = 0
        self.all_predicted = True

    def add(self, document: Encoded) -> None:
        self.tokens += len(document.tokens)
        self.documents += 1
        self.all_predicted &= bool(document.loss.all())
        self.files["tokens"].write(document.tokens.astype(self.dtype).tobytes())
        self.files["ends"].write(np.array([self.tokens], np.int64).tobytes())
        self.files["loss"].write(document.loss.astype(np.uint8).tobytes())

    def close(self) -> dict[str, Any]:
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        if self.all_predicted:
            Path(f"{self.stem}.loss").unlink()
        return {"tokens": self.tokens, "documents": self.documents, "loss": not self.all_predicted}


def write_shard(directory: Path, index: int, documents: Iterable[tuple[str, Encoded]], dtype: str) -> None:
    """Documents of (split, tokens) into shard `index`."""
    writers = {split: ShardWriter(directory / f"{index:05d}.{split}", dtype) for split in SPLITS}
    for split, document in documents:
        writers[split].add(document)
    write_json(directory / f"{index:05d}.json", {split: writer.close() for split, writer in writers.items()})


def is_complete(directory: Path, index: int) -> bool:
    return (directory / f"{index:05d}.json").is_file()


@dataclass(frozen=True)
class Shard:
    """One split of a shard, memory-mapped when first used."""

    stem: Path
    num_tokens: int
    num_documents: int
    has_loss: bool
    dtype: str

    @cached_property
    def tokens(self) -> NDArray[np.integer]:
        return self._mapped("tokens", self.dtype, self.num_tokens)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        return self._mapped("ends", "int64", self.num_documents)

    @cached_property
    def loss(self) -> NDArray[np.uint8] | None:
        return self._mapped("loss", "uint8", self.num_tokens) if self.has_loss else None

    def _mapped(self, suffix: str, dtype: str, length: int) -> Any:
        path = Path(f"{self.stem}.{suffix}")
        expected = length * np.dtype(dtype).itemsize
        found = path.stat().st_size if path.is_file() else -1
        if found != expected:
            raise ValueError(
                f"{path} has {found} bytes, its shard has {expected}: remove the directory and prepare again"
            )
        return np.memmap(path, dtype, "r") if length else np.empty(0, dtype)


def open_shards(directory: Path, split: str) -> list[Shard]:
    """All shards of a prepared source that have documents in this split."""
    description = read_json(directory / "source.json")
    shards = []
    for index in range(description["shards"]):
        if not is_complete(directory, index):
            raise ValueError(
                f"{directory}: shard {index} of {description['shards']} is missing: run `iha prepare` again"
            )
        entry = read_json(directory / f"{index:05d}.json")[split]
        if entry["documents"]:
            stem = directory / f"{index:05d}.{split}"
            shards.append(Shard(stem, entry["tokens"], entry["documents"], entry["loss"], description["dtype"]))
    return shards
