"""The state of training: made early it is AdamW's own, and nothing else is needed to go on."""

import copy

import torch
from torch import nn

from iha.train.state import STEP, initialise, restore_steps, tensors


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def optimiser_of(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)


def trained(model: nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimiser.zero_grad()
        model(x).square().sum().backward()
        optimiser.step()


def test_state_made_early_changes_no_step() -> None:
    one, other = network(), network()
    late, early = optimiser_of(one), optimiser_of(other)
    initialise(early)
    assert tensors(other, early)[STEP].item() == 0
    trained(one, late, 3)
    trained(other, early, 3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_it_is_all_that_a_run_needs_to_go_on() -> None:
    model = network()
    optimiser = optimiser_of(model)
    initialise(optimiser)
    trained(model, optimiser, 3)
    saved = copy.deepcopy(tensors(model, optimiser))
    assert saved.keys() == {STEP} | {
        f"{kind}.{name}" for name, _ in model.named_parameters()
        for kind in ("model", "optimiser.exp_avg", "optimiser.exp_avg_sq")
    }  # fmt: skip
    assert saved[STEP].item() == 3

    torch.manual_seed(9)
    fresh = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    resumed = optimiser_of(fresh)
    initialise(resumed)
    live = tensors(fresh, resumed)
    for name, tensor in live.items():
        tensor.copy_(saved[name])  # as a checkpoint is loaded: in place
    restore_steps(resumed, live)
    trained(model, optimiser, 2)
    trained(fresh, resumed, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))
