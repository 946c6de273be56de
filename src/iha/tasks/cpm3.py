"""Count Permutation Match-3: for every token i, how many ordered pairs (j1, j2) have x_i + G x_j1 + x_j2 = 0 mod M?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.tasks.base import Task


@dataclass(frozen=True)
class CPM3(Task):
    """N numbers below the largest N; the count, in 0 .. N², is the class of the token.

    G is 2 modulo M: the paper's condition G > 2M does not make the predicate order-sensitive (with G = 1 mod M it
    is symmetric in j1 and j2).
    """

    modulus: int = 3  # M
    coefficient: int = 8  # G

    kind = "classes"

    @property
    def vocabularies(self) -> tuple[int, ...]:
        return (max(self.sizes),)

    @property
    def num_outputs(self) -> int:
        return max(self.sizes) ** 2 + 1

    def length(self, size: int) -> int:
        return size

    def draw(self, size: int, count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(max(self.sizes), (count, size, 1), generator=generator)

    def answer(self, inputs: Tensor, size: int) -> Tensor:
        residues = torch.nn.functional.one_hot(inputs[..., 0] % self.modulus, self.modulus).sum(1)  # (n, M) how often
        counts = []
        for residue in range(self.modulus):  # of x_i
            first = torch.arange(self.modulus)  # residue of x_j1; that of x_j2 follows
            second = (-residue - self.coefficient * first) % self.modulus
            counts.append((residues[:, first] * residues[:, second]).sum(1))
        return torch.stack(counts, 1).gather(1, inputs[..., 0] % self.modulus)
