"""Polynomial filters: from node features X, the bank [X, AX, ..., A^(k-1) X] of a fixed graph A."""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.tasks.base import Task


@dataclass(frozen=True)
class PolynomialFilter(Task):
    """A token is a node with d normal features; its targets are k x d real numbers.

    The graph is fixed (the same for all examples and seeds), as in the paper's theorem, where its powers live in the
    weights and learned positions stand for the identity matrix beside X. A is a random walk: its powers have
    non-negative rows of sum 1, so softmax attention can represent each, one pattern a power. Every power's block is
    scaled to variance 1, so that all count alike.
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
        step, power = self.graph(size), torch.eye(size, dtype=torch.float64)
        blocks = []
        for _ in range(self.order):
            scale = power.square().sum(1).mean().sqrt()  # the standard deviation of its output on normal features
            blocks.append((power / scale).float() @ inputs)
            power = power @ step
        return torch.cat(blocks, -1)
