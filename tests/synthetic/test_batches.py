"""Batches cut by size give the loss and the gradient of padded ones; an epoch can be entered at any step."""

import pytest
import torch
from torch import Tensor

from iha.synthetic.batches import Batches, Tally, chunks, hits, num_valid, summed_loss
from iha.synthetic.model import SyntheticModel
from iha.synthetic.tasks import IGNORE, TASKS, generate

VARIANTS = {"mha": {}, "iha": {"num_pseudo_heads": 2, "init": "random"}, "simplicial": {}, "talking_heads": {}}


def padded(parts: list[tuple[int, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Right padding as the paper's, with ones in it: whatever stands there must not matter."""
    longest = max(inputs.shape[1] for _, inputs, _ in parts)
    lengths = torch.cat([torch.full((len(inputs),), inputs.shape[1]) for _, inputs, _ in parts])
    all_inputs = torch.cat([torch.nn.functional.pad(x, (0, 0, 0, longest - x.shape[1]), value=1) for _, x, _ in parts])
    targets = [torch.nn.functional.pad(t, (0, longest - t.shape[1]), value=IGNORE) for _, _, t in parts]
    return all_inputs, torch.cat(targets), lengths


@pytest.mark.parametrize("task", ["binary", "retrieval"])
@pytest.mark.parametrize("mechanism", VARIANTS)
def test_parts_by_size_equal_the_padded_batch(task: str, mechanism: str) -> None:
    torch.manual_seed(0)
    model = SyntheticModel(TASKS[task], mechanism, width=16, num_heads=2, **VARIANTS[mechanism]).double()
    parts = next(Batches(generate(TASKS[task], "train", 0, 12), 12, seed=0).epoch(0))
    assert len(parts) > 1  # of several sizes
    kind, valid = TASKS[task].kind, sum(num_valid(targets) for _, _, targets in parts)

    bucketed = sum(summed_loss(model(inputs, size), targets, kind) for size, inputs, targets in parts) / valid
    grads = torch.autograd.grad(bucketed, list(model.parameters()), allow_unused=True)

    inputs, targets, lengths = padded(parts)
    outputs = model(inputs, max(TASKS[task].sizes), lengths)
    together = summed_loss(outputs, targets, kind) / num_valid(targets)
    expected = torch.autograd.grad(together, list(model.parameters()), allow_unused=True)

    torch.testing.assert_close(bucketed, together, atol=1e-13, rtol=0)
    for (name, _), mine, theirs in zip(model.named_parameters(), grads, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0, msg=lambda m, name=name: f"{name}: {m}")
    right = [hits(model(inputs, size), targets, kind) for size, inputs, targets in parts]
    assert [sum(column) for column in zip(*right, strict=True)] == list(hits(outputs, targets, kind))


def test_an_epoch_holds_every_example_once_and_can_be_entered_anywhere() -> None:
    groups = generate(TASKS["binary"], "train", 0, 101)
    batches = Batches(groups, 16, seed=5)

    def content(steps: list[list[tuple[int, Tensor, Tensor]]]) -> list[bytes]:
        return [row.numpy().tobytes() for parts in steps for _, inputs, _ in parts for row in inputs]

    whole = list(batches.epoch(2))
    assert len(whole) == len(batches) == 7
    assert sorted(content(whole)) == sorted(row.numpy().tobytes() for group in groups.values() for row in group.inputs)
    assert content(list(batches.epoch(2, start=3))) == content(whole[3:])
    assert content(list(batches.epoch(3))) != content(whole)


def test_chunks_hold_everything_once() -> None:
    groups = generate(TASKS["ternary"], "test", 0, 50)
    parts = list(chunks(groups, tokens=200))
    assert sum(len(inputs) for _, inputs, _ in parts) == 50
    assert max(inputs.shape[0] * inputs.shape[1] for _, inputs, _ in parts) <= 200


def test_scores() -> None:
    logits = torch.tensor([[[2.0], [-1.0], [3.0]]])
    targets = torch.tensor([[1, 1, IGNORE]])
    assert hits(logits, targets, "binary") == (1.0, 2.0)
    torch.testing.assert_close(
        summed_loss(logits, targets, "binary"), -torch.sigmoid(torch.tensor([2.0, -1.0])).log().sum()
    )
    values = torch.tensor([[[1.0], [-2.0]]])
    assert hits(values, values, "values") == (5.0, 5.0)
    assert hits(torch.zeros_like(values), values, "values") == (0.0, 5.0)
    tally = Tally()
    tally.add(2.0, 4, 3.0, 4.0)
    tally.add(1.0, 2, 0.0, 2.0)
    assert (tally.mean_loss, tally.score) == (0.5, 0.5)
