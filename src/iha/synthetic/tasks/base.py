"""What a task is, and how its splits are drawn.

A task draws inputs and answers them. Whether an example belongs to train, validation or test is decided by a hash of
its content. A split draws examples until it has enough that belong to it. So the three splits are disjoint by
construction, whatever the seed and the number of examples, and each can be generated without the others: it is a pure
function of (task, split, seed). Without this the small tasks would leak: of the 1 250 5 x 5 matrices in a ternary
test set of independent draws, about 50 are in the training set too.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORE = -100  # a target that is not asked for
SPLITS = ("train", "validation", "test")
_TENTHS = {"train": (0, 8), "validation": (8, 9), "test": (9, 10)}  # of the hash, as 40 000 / 5 000 / 5 000 examples


@dataclass(frozen=True)
class Group:
    """The examples of one size: no padding inside."""

    inputs: Tensor  # (n, N, F) int64 ids, or float features
    targets: Tensor  # (n, N) int64, IGNORE where nothing is asked; or (n, N, K) float

    def __len__(self) -> int:
        return self.inputs.shape[0]


@dataclass(frozen=True)
class Task(ABC):
    """A sequence-to-sequence task: every token gets an answer (or none is asked of it).

    An example has a size (m of an m x m matrix, a number of nodes, ...), drawn uniformly from `sizes`.
    """

    name: str
    sizes: tuple[int, ...]

    # "binary": one logit per token; "classes": num_outputs logits; "values": num_outputs real numbers
    kind = "binary"
    grid = False  # whether tokens are the cells of a size x size matrix: only then 2-D positions make sense

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Sizes of the F id fields of a token; empty when tokens are real features."""
        return (2,)

    @property
    def num_features(self) -> int:
        """F of real features; 0 when tokens are ids."""
        return 0

    @property
    def num_outputs(self) -> int:
        return 1

    @abstractmethod
    def length(self, size: int) -> int:
        """N, the number of tokens."""

    @abstractmethod
    def draw(self, size: int, count: int, generator: torch.Generator) -> Tensor:
        """Random inputs, (count, N, F)."""

    @abstractmethod
    def answer(self, inputs: Tensor, size: int) -> Tensor:
        """The exact targets of inputs, (count, N) or (count, N, K)."""

    def check(self) -> None:
        """Sizes that cannot be drawn raise ValueError."""
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"task {self.name!r} needs sizes of at least 1, got {self.sizes}")


def generate(task: Task, split: str, seed: int, count: int) -> dict[int, Group]:
    """`count` examples of a split, grouped by size. Sizes are drawn uniformly, example by example."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
    if count < 1:
        raise ValueError(f"the number of examples must be at least 1, got {count}")
    task.check()
    drawn = torch.randint(len(task.sizes), (count,), generator=_generator(task.name, split, seed, "sizes"))
    groups = {}
    for index, size in enumerate(task.sizes):
        wanted = int((drawn == index).sum())
        if wanted:
            inputs = _draw_of_split(task, split, size, wanted, _generator(task.name, split, seed, size))
            groups[size] = Group(inputs, task.answer(inputs, size))
    return groups


def _draw_of_split(task: Task, split: str, size: int, wanted: int, generator: torch.Generator) -> Tensor:
    first, last = _TENTHS[split]
    kept: list[Tensor] = []
    missing = wanted
    for _ in range(100):
        candidates = task.draw(size, max(64, int(1.1 * missing * 10 / (last - first))), generator)
        tenth = content_hash(candidates).remainder(10)
        kept.append(candidates[(tenth >= first) & (tenth < last)][:missing])
        missing -= len(kept[-1])
        if missing == 0:
            return torch.cat(kept)
    raise ValueError(f"task {task.name!r} of size {size} has too few different examples for a {split} split")


def content_hash(inputs: Tensor) -> Tensor:
    """(n, N, F) to (n,) int64, equal for equal content: a random linear form modulo 2^64, then scrambled."""
    bits = (inputs.contiguous().view(torch.int32) if inputs.is_floating_point() else inputs).flatten(1).long()
    weights = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=torch.Generator().manual_seed(0))
    value = (bits * (2 * weights + 1)).sum(1)
    for multiplier in (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15):  # of splitmix64
        value = (value ^ (value >> 30)) * multiplier
    return value ^ (value >> 31)


def _generator(*key: object) -> torch.Generator:
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
