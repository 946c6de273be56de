"""The batch of a step: a pure function of (recipe, step). Every process takes its share of it."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from iha.train.order import Order
from iha.train.packing import IGNORED, PackedSource, Sequence
from iha.train.recipe import Data
from iha.train.tokenise import TextTokenizer


@dataclass(frozen=True)
class Batch:
    tokens: Tensor  # (B, N)
    labels: Tensor  # (B, N)
    documents: Tensor | None  # (B, N); None when every sequence is one document
    few_targets: bool = False  # less than half of the labels count: the loss then looks at those alone

    @property
    def num_targets(self) -> int:
        return int((self.labels != IGNORED).sum())

    def first(self, count: int) -> "Batch":
        return next(self.split(count))

    def split(self, size: int) -> Iterator["Batch"]:
        for start in range(0, len(self.tokens), size):
            part = slice(start, start + size)
            documents = None if self.documents is None else self.documents[part]
            yield Batch(self.tokens[part], self.labels[part], documents, self.few_targets)

    def to(self, device: torch.device) -> "Batch":
        moved = [
            None if t is None else t.to(device, non_blocking=True) for t in (self.tokens, self.labels, self.documents)
        ]
        return Batch(moved[0], moved[1], moved[2], self.few_targets)  # type: ignore[arg-type]


class Corpus:
    """The prepared sources of a recipe, as batches of steps."""

    def __init__(self, data: Data, directory: Path, tokenizer: TextTokenizer, seed: int) -> None:
        self.data = data
        self.sources = {split: self._open(directory, split, tokenizer.end_id) for split in ("train", "validation")}
        train = self.sources["train"]
        self.order = Order(
            seed, tuple(len(source) for source in train.values()), tuple(source.weight for source in data.sources)
        )

    def _open(self, directory: Path, split: str, end_id: int) -> dict[str, PackedSource]:
        return {
            source.name: PackedSource(directory / source.name, split, self.data.context, self.data.packing, end_id)
            for source in self.data.sources
        }

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The share of process `rank` of `world` in the batch of step `step` (from 0)."""
        share = self.data.batch // world
        first = step * self.data.batch + rank * share
        found = self.order.locate(np.arange(first, first + share))
        sources = list(self.sources["train"].values())
        return collate([sources[s][int(i)] for s, i in zip(found.source, found.sequence, strict=True)])

    def validation(self, name: str, sequences: int) -> list[int]:
        """The first held-out sequences of a source, by number."""
        return list(range(min(sequences, len(self.sources["validation"][name]))))

    def validation_batch(self, name: str, numbers: list[int]) -> Batch:
        return collate([self.sources["validation"][name][number] for number in numbers])


def collate(sequences: list[Sequence]) -> Batch:
    tokens, labels, documents = (
        torch.from_numpy(np.stack([getattr(sequence, name) for sequence in sequences]))
        for name in ("tokens", "labels", "documents")
    )
    few = 2 * int((labels != IGNORED).sum()) < labels.numel()
    return Batch(tokens, labels, documents if bool(documents.any()) else None, few)


class Prefetched:
    """Batches prefetched by a thread before the step that needs them."""

    def __init__(self, corpus: Corpus, rank: int, world: int, ahead: int = 2) -> None:
        self.corpus, self.rank, self.world, self.ahead = corpus, rank, world, ahead
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self.pending: dict[int, Future[Batch]] = {}

    def batch(self, step: int) -> Batch:
        for number in range(step, step + 1 + self.ahead):
            if number not in self.pending:
                self.pending[number] = self.pool.submit(self.corpus.batch, number, self.rank, self.world)
        self.pending = {number: future for number, future in self.pending.items() if number >= step}
        return self.pending.pop(step).result()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
