"""One training step: the gradient over all micro-batches and processes, then the update."""

import torch
from torch import Tensor

from iha.train.batches import Batch
from iha.train.objective import Objective
from iha.train.optimise import clip, gradient_norm


def gradient(objective: Objective, batch: Batch, targets: float, world: int, micro_batch: int) -> tuple[Tensor, Tensor]:
    """Gradients of this process's share of a batch with `targets` targets over all processes.

    Returns this process's share of the loss and the norm of the whole gradient. FSDP2 averages gradients over
    processes; the factor `world` makes that a sum. So the result is the gradient of the mean over all targets, however
    they are spread over processes and micro-batches.
    """
    total = torch.zeros((), device=batch.tokens.device, dtype=torch.float64)
    for part in batch.split(micro_batch):
        loss = objective(part.tokens, part.labels, part.documents, part.few_targets) / targets
        (loss * world).backward()
        total += loss.detach()
    return total, gradient_norm(objective)


def update(objective: Objective, optimiser: torch.optim.Optimizer, norm: Tensor, bound: float | None) -> None:
    clip(objective, norm, bound)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
