"""Count Permutation Match-3: for every token i, how many ordered pairs (j1, j2) have x_i + G x_j1 + x_j2 = 0 mod M?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.synthetic.tasks.base import Task

_TRIPLES = 1 << 22  # in memory at a time


def count_matches(x: Tensor, modulus: int, coefficient: int) -> Tensor:
    """The definition, in integers over all N³ triples: x (B, N) to the counts (B, N). Used by theory too."""
    total = x[:, :, None, None] + coefficient * x[:, None, :, None] + x[:, None, None, :]  # (B, i, j1, j2)
    return (total % modulus == 0).sum(dim=(2, 3))


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
        examples = inputs[..., 0].split(max(1, _TRIPLES // size**3))
        return torch.cat([count_matches(x, self.modulus, self.coefficient) for x in examples])
