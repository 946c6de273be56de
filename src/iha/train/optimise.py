"""AdamW in three groups, and the learning rate as a function of the step."""

import math

import torch
from torch import Tensor, nn

from iha.train.build import mixing_parameters
from iha.train.recipe import Optimiser, Schedule


def rate(schedule: Schedule, step: int) -> float:
    """Fraction of the peak learning rate at step `step` (from 0): linear warm-up, then cosine to `final`."""
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    progress = (step - schedule.warmup) / max(1, schedule.steps - 1 - schedule.warmup)
    return schedule.final + (1 - schedule.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_optimiser(model: nn.Module, settings: Optimiser) -> torch.optim.AdamW:
    """Matrices decay; norms, biases and mixing parameters do not, and mixing has its own learning rate.

    Frozen parameters are left out.
    """
    mixing = mixing_parameters(model)
    groups: dict[str, list[nn.Parameter]] = {"matrices": [], "vectors": [], "mixing": []}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        group = "mixing" if name in mixing else "matrices" if parameter.dim() >= 2 else "vectors"
        groups[group].append(parameter)
    peak, mixing_peak = settings.learning_rate, settings.mixing_learning_rate or settings.learning_rate
    return torch.optim.AdamW(
        [
            {"params": parameters, "name": name, "peak": mixing_peak if name == "mixing" else peak,
             "weight_decay": settings.weight_decay if name == "matrices" else 0.0}
            for name, parameters in groups.items() if parameters
        ],
        lr=peak, betas=(settings.beta1, settings.beta2), eps=settings.epsilon, fused=True,
    )  # fmt: skip


def set_rate(optimiser: torch.optim.Optimizer, schedule: Schedule, step: int) -> float:
    """Set every group's learning rate for a step; the first group's is returned."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * rate(schedule, step)
    return optimiser.param_groups[0]["lr"]


def gradient_norm(model: nn.Module) -> Tensor:
    """Norm of all gradients together, over all shards."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def clip(model: nn.Module, norm: Tensor, bound: float | None) -> None:
    if bound is not None:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), bound, norm)
