"""Which sequence comes when: a pure function of (seed, sample number), in constant memory.

Sample s is the s-th sequence of the whole run: step t of batches of B has samples t·B to (t+1)·B − 1, whatever the
number of processes. The mixture is laid out in blocks of `BLOCK` samples: every block holds each source in proportion
to its weight, in a permuted order. Each source yields its sequences in a permuted order, a new one in every epoch:
every sequence occurs exactly once per epoch.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096  # samples; weights are rounded to 1/BLOCK
_ROUNDS = 6


def mixed_bits(x: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the input and of the key changes half of the output's bits."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(key & 0xFFFFFFFFFFFFFFFF) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def derived_key(*parts: int) -> int:
    """One 64-bit key from several numbers."""
    key, low = 0, 0xFFFFFFFFFFFFFFFF
    for part in parts:  # `mixed_bits` in Python's integers: ten times as fast for one number
        x = (part + (key + 1) * 0x9E3779B97F4A7C15) & low
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & low
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & low
        key = x ^ (x >> 31)
    return key


def permuted(indices: NDArray[np.integer], size: int, key: int) -> NDArray[np.int64]:
    """A permutation of 0..size-1 applied to `indices`: a Feistel network with cycle walking."""
    if size < 1:
        raise ValueError(f"nothing to permute: size {size}")
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    low_bits = np.uint64((1 << half) - 1)
    values = np.asarray(indices, np.uint64).copy()
    todo = np.ones(values.shape, bool)
    while todo.any():  # the domain is less than 4 times as large as `size`: few walks
        x = values[todo]
        left, right = x >> np.uint64(half), x & low_bits
        for number in range(_ROUNDS):
            left, right = right, left ^ (mixed_bits(right, key + number) & low_bits)
        values[todo] = (left << np.uint64(half)) | right
        todo = values >= np.uint64(size)
    return values.astype(np.int64)


@dataclass(frozen=True)
class Located:
    """Where samples are found."""

    source: NDArray[np.int64]
    epoch: NDArray[np.int64]
    sequence: NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    seed: int
    sizes: tuple[int, ...]  # sequences of each source
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for index, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            if size < 1:
                raise ValueError(f"source {index} has no sequence to train on")
            if count < 1:
                raise ValueError(f"source {index} has a share below 1/{BLOCK} of the mixture: {self.weights[index]}")

    @property
    def counts(self) -> tuple[int, ...]:
        """Samples of each source in a block."""
        return _shares(self.weights)

    def locate(self, samples: NDArray[np.integer]) -> Located:
        samples = np.asarray(samples, np.int64)
        source, position = np.empty_like(samples), np.empty_like(samples)
        for block in np.unique(samples // BLOCK):
            here = samples // BLOCK == block
            sources, ranks = _layout(self.seed, int(block), self.counts)
            slots = samples[here] % BLOCK
            source[here] = sources[slots]
            position[here] = block * np.asarray(self.counts)[sources[slots]] + ranks[slots]
        sizes = np.asarray(self.sizes, np.int64)[source]
        epoch, within = position // sizes, position % sizes
        sequence = np.empty_like(samples)
        for pair in {(int(s), int(e)) for s, e in zip(source, epoch, strict=True)}:
            here = (source == pair[0]) & (epoch == pair[1])
            sequence[here] = permuted(within[here], self.sizes[pair[0]], derived_key(self.seed, 1, *pair))
        return Located(source, epoch, sequence)


@lru_cache(maxsize=64)
def _shares(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Whole numbers that add up to BLOCK, by largest remainders."""
    exact = np.asarray(weights) / sum(weights) * BLOCK
    counts = np.floor(exact).astype(int)
    for index in np.argsort(counts - exact, kind="stable")[: BLOCK - counts.sum()]:
        counts[index] += 1
    return tuple(int(count) for count in counts)


@lru_cache(maxsize=4)
def _layout(seed: int, block: int, counts: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(source, how many of that source came before in the block) of every sample of a block."""
    places = permuted(np.arange(BLOCK), BLOCK, derived_key(seed, 2, block))
    sources = np.repeat(np.arange(len(counts)), counts)[places]
    ranks = np.empty(BLOCK, np.int64)
    for index in range(len(counts)):
        here = sources == index
        ranks[here] = np.arange(here.sum())
    return sources, ranks
