"""Relation composition (appendix D of the paper): is there a path of exactly two, or three, steps from i to j?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.synthetic.tasks.base import Task


@dataclass(frozen=True)
class RelationComposition(Task):
    """A random m x m boolean matrix R, row by row as m² tokens; the target is the matching entry of R ∘ ... ∘ R."""

    hops: int = 2
    density: float = 0.325  # of ones in R; the paper chose it so that the targets are about balanced

    kind = "binary"
    grid = True

    def length(self, size: int) -> int:
        return size * size

    def draw(self, size: int, count: int, generator: torch.Generator) -> Tensor:
        return (torch.rand(count, size * size, 1, generator=generator) < self.density).long()

    def answer(self, inputs: Tensor, size: int) -> Tensor:
        relation = inputs.view(-1, size, size).float()
        reached = relation
        for _ in range(self.hops - 1):
            reached = (reached @ relation > 0).float()  # 0/1 sums of at most m ones: exact in float32
        return reached.flatten(1).long()
