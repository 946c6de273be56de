"""All weights and AdamW's moments, as named tensors. Nothing else needs to be saved.

The learning rate and the data are functions of the step, and so is what attention drops.
"""

import torch
from torch import Tensor, nn

STEP = "optimiser.step"  # updates so far; fewer than training steps when some were skipped
MOMENTS = ("exp_avg", "exp_avg_sq")


def initialise(optimiser: torch.optim.Optimizer) -> None:
    """Create AdamW's state before the first step. AdamW would do it later, but loading needs tensors to load into."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            optimiser.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                **{moment: torch.zeros_like(parameter) for moment in MOMENTS},
            }


def tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The live tensors by name, DTensors where the model is sharded."""
    named = dict(model.named_parameters())
    trained = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
    state = {f"model.{name}": parameter.detach() for name, parameter in named.items()}
    for moment in MOMENTS:
        state |= {f"optimiser.{moment}.{name}": optimiser.state[p][moment] for name, p in trained.items()}
    steps = {float(optimiser.state[p]["step"]) for p in trained.values()}
    assert len(steps) == 1, f"parameters were updated unequally often: {steps}"
    return state | {STEP: torch.tensor([steps.pop()])}


def restore_steps(optimiser: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    """The other tensors are loaded in place; the count of updates is one tensor for all parameters."""
    for parameter_state in optimiser.state.values():
        parameter_state["step"].fill_(float(state[STEP]))
