"""A step: the gradient of the mean over all targets, however they are spread; the update of plain AdamW."""

import copy

import pytest
import runs
import torch
import torch.nn.functional as F

from iha.train.batches import Batch
from iha.train.build import build_model, model_config
from iha.train.objective import Objective
from iha.train.packing import IGNORED
from iha.train.step import gradient, update


@pytest.fixture
def objective(tmp_path):
    recipe = runs.tiny(tmp_path, "parallel.precision=float64")
    return Objective(build_model(recipe, model_config(recipe, 262, 256)))


def batch() -> Batch:
    tokens, labels = torch.randint(0, 262, (2, 5, 9))
    labels[torch.arange(9) > torch.arange(5)[:, None] + 2] = IGNORED  # every sequence has another number of targets
    return Batch(tokens, labels, None)


def by_definition(objective, whole: Batch):
    logits = objective.model(whole.tokens, use_cache=False).logits.flatten(0, 1)
    loss = F.cross_entropy(logits, whole.labels.flatten(), ignore_index=IGNORED)
    return loss, torch.autograd.grad(loss, list(objective.parameters()))


@pytest.mark.parametrize("micro_batch", [1, 2, 5, 16])
def test_micro_batches_give_the_gradient_of_the_mean(objective, micro_batch):
    whole = batch()
    loss, wanted = by_definition(objective, whole)
    found, norm = gradient(objective, whole, whole.num_targets, 1, micro_batch)
    assert found.item() == pytest.approx(loss.item(), rel=1e-12)
    for parameter, want in zip(objective.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, want, rtol=1e-10, atol=1e-14)
    assert norm.item() == pytest.approx(sum(g.square().sum() for g in wanted).sqrt().item(), rel=1e-10)


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_few_targets_give_the_same_gradient_in_any_micro_batches(objective, micro_batch, chunk):
    """One sequence has no target at all, so with micro-batches of one, one of them has none."""
    tokens, labels = torch.randint(0, 262, (2, 5, 9))
    labels[torch.arange(9) > torch.arange(5)[:, None] - 1] = IGNORED  # 0, 1, 2, 3 and 4 targets
    whole = Batch(tokens, labels, None, few_targets=True)
    loss, wanted = by_definition(objective, whole)
    objective.chunk = chunk
    found, norm = gradient(objective, whole, whole.num_targets, 1, micro_batch)
    assert found.item() == pytest.approx(loss.item(), rel=1e-12)
    for parameter, want in zip(objective.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, want, rtol=1e-12, atol=1e-12)
    assert norm.item() == pytest.approx(sum(g.square().sum() for g in wanted).sqrt().item(), rel=1e-12)


def test_shares_averaged_over_processes_are_the_whole(objective):
    """What FSDP2 does: it averages. Uneven shares of targets still give the mean over all of them."""
    whole = batch()
    loss, wanted = by_definition(objective, whole)
    shares, losses = [], []
    for share in whole.split(3):
        objective.zero_grad()
        part, _ = gradient(objective, share, whole.num_targets, 2, 2)
        losses.append(part)
        shares.append([p.grad.clone() for p in objective.parameters()])
    assert sum(losses).item() == pytest.approx(loss.item(), rel=1e-12)
    for one, other, want in zip(*shares, wanted, strict=True):
        torch.testing.assert_close((one + other) / 2, want, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("bound", [None, 0.1])
def test_the_update_is_torch_s_with_clipping(objective, bound):
    whole, twin = batch(), copy.deepcopy(objective)
    ours, theirs = (torch.optim.AdamW(o.parameters(), lr=0.1) for o in (objective, twin))
    _, norm = gradient(objective, whole, whole.num_targets, 1, 16)
    assert norm > 0.1
    update(objective, ours, norm, bound)
    _, gradients = by_definition(twin, whole)
    for parameter, value in zip(twin.parameters(), gradients, strict=True):
        parameter.grad = value
    if bound is not None:
        torch.nn.utils.clip_grad_norm_(twin.parameters(), bound)
    theirs.step()
    for one, other in zip(objective.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
    assert all(p.grad is None for p in objective.parameters())
