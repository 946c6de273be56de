"""Sequences of N tokens out of shards, read through memory maps: memory does not grow with the corpus."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iha.train.shards import Shard, open_shards

IGNORED = -100  # a label that is not predicted


@dataclass(frozen=True)
class Sequence:
    tokens: NDArray[np.int64]  # (N,)
    labels: NDArray[np.int64]  # (N,) the next token, or IGNORED
    documents: NDArray[np.int64]  # (N,) numbered from 0 within the sequence


@dataclass(frozen=True)
class PackedSource:
    """One split of a prepared source as sequences.

    "stream": tokens as they come, cut every N; the next sequence starts with the last one's last target.
    "whole": as many whole documents as fit; one longer than N is cut off at N.
    """

    directory: Path
    split: str
    context: int
    packing: str
    end_id: int

    @cached_property
    def shards(self) -> list[Shard]:
        return open_shards(self.directory, self.split)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Number of the first sequence of each shard, and of all sequences at the end."""
        counts = [self._count(shard) for shard in self.shards]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self.shards)

    def __getitem__(self, index: int) -> Sequence:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        number = int(np.searchsorted(self.first, index, side="right")) - 1
        shard, index = self.shards[number], index - int(self.first[number])
        if self.packing == "stream":
            return self._cut(shard, index * self.context, self.context + 1)
        starts = self._whole_starts(shard)
        last = shard.num_documents if index + 1 == len(starts) else int(starts[index + 1])
        begin = 0 if starts[index] == 0 else int(shard.ends[starts[index] - 1])
        return self._cut(shard, begin, min(int(shard.ends[last - 1]) - begin, self.context + 1))

    def _cut(self, shard: Shard, begin: int, length: int) -> Sequence:
        """`length` tokens from `begin`, of which the last is only a target, padded to N."""
        N = self.context
        stop = min(begin + length, shard.num_tokens)
        tokens = np.full(N + 1, self.end_id, np.int64)
        tokens[: stop - begin] = shard.tokens[begin:stop]
        documents = np.searchsorted(shard.ends, np.arange(begin, begin + N + 1), side="right")
        documents[stop - begin :] = shard.num_documents + 1  # padding
        predicted = documents[1:] == documents[:-1]  # nothing predicts the first token of a document
        numbered = np.concatenate([[0], np.cumsum(~predicted[:-1])])
        predicted[max(0, stop - begin - 1) :] = False
        if shard.loss is not None:
            predicted[: stop - begin - 1] &= shard.loss[begin + 1 : stop].astype(bool)
        labels = np.where(predicted, tokens[1:], IGNORED)
        return Sequence(tokens[:-1], labels, numbered)

    def _count(self, shard: Shard) -> int:
        if self.packing == "stream":
            return max(1, -(-(shard.num_tokens - 1) // self.context))
        return len(self._whole_starts(shard))

    def _whole_starts(self, shard: Shard) -> NDArray[np.int64]:
        """The first document of each sequence, found once and kept beside the shard."""
        path = Path(f"{shard.stem}.whole-{self.context}.npy")
        if not path.is_file():
            _write_starts(path, whole_starts(np.diff(shard.ends, prepend=0), self.context + 1))
        return np.load(path, mmap_mode="r")


def whole_starts(lengths: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """Next fit: a document that does not fit starts a new sequence."""
    starts, used = [], room
    for index, length in enumerate(lengths.tolist()):
        if used + length > room:
            starts.append(index)
            used = 0
        used += length
    return np.array(starts, np.int64)


def _write_starts(path: Path, starts: NDArray[np.int64]) -> None:
    import io

    from iha.records import write_bytes

    buffer = io.BytesIO()
    np.save(buffer, starts)
    write_bytes(path, buffer.getvalue())
