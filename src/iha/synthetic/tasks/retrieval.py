"""Multi-key retrieval: which value was stored under this key, among many keys that differ in one half?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.synthetic.tasks.base import IGNORE, Task


@dataclass(frozen=True)
class MultiKeyRetrieval(Task):
    """`size` tokens that hold a two-symbol key and a value, then tokens that hold a key and ask for its value.

    A small version of RULER's multi-key needles: all keys of an example differ, most share a symbol with the one asked
    for, so matching one half is not enough. Key and value share a token because the model has only one layer (finding
    "what follows the key" needs two).
    """

    symbols: int = 6  # of each half of a key
    values: int = 8
    questions: int = 4

    kind = "classes"

    @property
    def vocabularies(self) -> tuple[int, ...]:
        return (self.symbols, self.symbols, self.values + 1)  # value 0 asks

    @property
    def num_outputs(self) -> int:
        return self.values

    def check(self) -> None:
        super().check()
        if max(self.sizes) > self.symbols**2:
            raise ValueError(f"{max(self.sizes)} different keys need more than {self.symbols} symbols")

    def length(self, size: int) -> int:
        return size + self.questions

    def draw(self, size: int, count: int, generator: torch.Generator) -> Tensor:
        keys = torch.rand(count, self.symbols**2, generator=generator).argsort(1)[:, :size]  # (n, size), all different
        values = torch.randint(1, self.values + 1, (count, size), generator=generator)
        asked = keys.gather(1, torch.randint(size, (count, self.questions), generator=generator))
        keys = torch.cat([keys, asked], 1)
        values = torch.cat([values, torch.zeros_like(asked)], 1)
        return torch.stack([keys // self.symbols, keys % self.symbols, values], -1)  # (n, N, 3)

    def answer(self, inputs: Tensor, size: int) -> Tensor:
        keys, values = inputs[..., 0] * self.symbols + inputs[..., 1], inputs[..., 2]
        found = (keys[:, size:, None] == keys[:, None, :size]).long().argmax(-1)  # (n, questions)
        targets = torch.full_like(keys, IGNORE)
        targets[:, size:] = values.gather(1, found) - 1
        return targets
