"""Batches without padding, the loss over them, and the score.

A batch is drawn over all sizes, as the paper's is, and then cut into one part per size. The parts' losses are summed
over valid positions and divided by the batch's number of valid positions: the loss and gradient of the padded batch,
without computing on padding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.synthetic.tasks import IGNORE, Group

Part = tuple[int, Tensor, Tensor]  # size, inputs (b, N, F), targets (b, N) or (b, N, K)


@dataclass
class Tally:
    """Sums over positions; the score is the share of right answers, or R² for real-valued targets."""

    loss: float = 0.0
    count: int = 0
    hits: float = 0.0
    weight: float = 0.0

    def add(self, loss: float, count: int, hits: float, weight: float) -> None:
        self.loss, self.count = self.loss + loss, self.count + count
        self.hits, self.weight = self.hits + hits, self.weight + weight

    @property
    def mean_loss(self) -> float:
        return self.loss / self.count

    @property
    def score(self) -> float:
        return self.hits / self.weight


class Batches:
    """The training batches of any epoch, by number, so that a resumed run continues with the batch it was killed in."""

    def __init__(self, groups: dict[int, Group], batch_size: int, seed: int) -> None:
        self.groups, self.batch_size, self.seed = groups, batch_size, seed
        self.sizes = torch.cat([torch.full((len(group),), size) for size, group in groups.items()])
        self.rows = torch.cat([torch.arange(len(group)) for group in groups.values()])

    def __len__(self) -> int:
        return -(-len(self.sizes) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[list[Part]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.sizes), generator=generator)
        for batch in order.split(self.batch_size)[start:]:
            sizes, rows = self.sizes[batch], self.rows[batch]
            yield [self._part(size, rows[sizes == size]) for size in sizes.unique().tolist()]

    def _part(self, size: int, rows: Tensor) -> Part:
        group = self.groups[size]
        return size, group.inputs[rows], group.targets[rows]


def chunks(groups: dict[int, Group], tokens: int = 16_384) -> Iterator[Part]:
    """Every example once, for evaluation, in parts of about this many tokens."""
    for size, group in groups.items():
        rows = max(1, tokens // group.inputs.shape[1])
        for inputs, targets in zip(group.inputs.split(rows), group.targets.split(rows), strict=True):
            yield size, inputs, targets


def num_valid(targets: Tensor) -> int:
    """Positions (and, for real targets, numbers) that the loss is averaged over."""
    return targets.numel() if targets.is_floating_point() else int((targets != IGNORE).sum())


def summed_loss(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """Summed over valid positions: binary cross-entropy, cross-entropy or squared error by the task's kind."""
    if kind == "values":
        return (outputs - targets).square().sum()
    if kind == "classes":
        return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    valid = targets != IGNORE
    return F.binary_cross_entropy_with_logits(outputs[..., 0][valid], targets[valid].to(outputs.dtype), reduction="sum")


@torch.no_grad()
def hits(outputs: Tensor, targets: Tensor, kind: str) -> tuple[float, float]:
    """Number of correct answers and of all answers; for real targets, explained and total variance."""
    if kind == "values":
        total = targets.square().sum().item()
        return total - (outputs - targets).square().sum().item(), total
    predicted = outputs.argmax(-1) if kind == "classes" else (outputs[..., 0] > 0).long()
    return float((predicted == targets).sum()), float((targets != IGNORE).sum())
