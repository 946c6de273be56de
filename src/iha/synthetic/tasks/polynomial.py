"""Polynomial filters: from node features X, the bank [X, AX, ..., A^(k-1) X] of a fixed graph A."""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.synthetic.tasks.base import Task


def powers(A: Tensor, k: int) -> list[Tensor]:
    """A^0 … A^(k-1), by repeated multiplication."""
    result = [torch.eye(A.shape[0], dtype=A.dtype)]
    while len(result) < k:
        result.append(result[-1] @ A)
    return result


def filter_bank(A: Tensor, X: Tensor, k: int) -> Tensor:
    """The definition, (B, N, k*d): X is multiplied by A once per power, and no power of A is ever formed."""
    blocks = [X]
    while len(blocks) < k:
        blocks.append(torch.einsum("nm,bmd->bnd", A, blocks[-1]))
    return torch.cat(blocks, dim=-1)


@dataclass(frozen=True)
class PolynomialFilter(Task):
    """A token is a node with d normal features; its targets are k x d real numbers.

    The graph is fixed (the same for all examples and seeds), as in the paper's theorem, where its powers live in the
    weights and learned positions stand for the identity matrix beside X. A is a random walk: its powers have
    non-negative rows of sum 1, so softmax attention can represent each, with one pattern per power. Every power's block
    is scaled to variance 1, so that all have equal weight in the loss.
    """

    order: int = 4  # k
    features: int = 2  # d
    edge_density: float = 0.2

    kind = "values"

    @property
    def vocabularies(self) -> tuple[int, ...]:
        return ()

    @property
    def num_features(self) -> int:
        return self.features

    @property
    def num_outputs(self) -> int:
        return self.order * self.features

    def length(self, size: int) -> int:
        return size

    def graph(self, size: int) -> Tensor:
        """A (N, N): a directed cycle, so that all nodes are reached, plus random edges; rows sum to 1."""
        generator = torch.Generator().manual_seed(size)
        edges = (torch.rand(size, size, generator=generator) < self.edge_density).double()
        edges[torch.arange(size), torch.arange(1, size + 1) % size] = 1
        return edges / edges.sum(1, keepdim=True)

    def draw(self, size: int, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, size, self.features, generator=generator)

    def answer(self, inputs: Tensor, size: int) -> Tensor:
        blocks = []
        for power in powers(self.graph(size), self.order):
            scale = power.square().sum(1).mean().sqrt()  # the standard deviation of its output on normal features
            blocks.append((power / scale).float() @ inputs)
        return torch.cat(blocks, -1)
