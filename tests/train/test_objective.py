"""The loss: transformers' own mean times the number of targets, and the same in chunks of tokens."""

import pytest
import runs
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from iha.train.build import build_model, model_config
from iha.train.objective import Objective
from iha.train.packing import IGNORED


@pytest.fixture
def model(tmp_path):
    recipe = runs.tiny(tmp_path, "parallel.precision=float64")
    return build_model(recipe, model_config(recipe, 262, 256))


def example(documents=False):
    tokens, labels = torch.randint(0, 262, (2, 3, 11))
    labels[torch.rand(3, 11) < 0.4] = IGNORED
    return tokens, labels, (torch.arange(11) // 4).expand(3, 11) if documents else None


@pytest.mark.parametrize("documents", [False, True])
def test_it_is_the_sum_of_cross_entropies(model, documents):
    tokens, labels, ids = example(documents)
    logits = model(tokens, document_ids=ids, use_cache=False).logits
    logs = logits.log_softmax(dim=-1)
    wanted = -sum(logs[b, n, labels[b, n]] for b, n in (labels != IGNORED).nonzero().tolist())
    torch.testing.assert_close(Objective(model)(tokens, labels, ids), wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("chunk", [1, 5, 32, 33])
def test_chunks_change_neither_loss_nor_gradients(model, chunk):
    tokens, labels, ids = example(documents=True)
    whole = Objective(model)(tokens, labels, ids)
    parts = Objective(model, chunk)(tokens, labels, ids)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)
    for one, other in zip(*(torch.autograd.grad(loss, model.parameters()) for loss in (parts, whole)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_chunks_hold_fewer_logits_at_once(model):
    tokens, labels, _ = example()
    rows = []
    model.lm_head.register_forward_hook(lambda _, __, logits: rows.append(len(logits)))
    Objective(model, 10)(tokens, labels, None)
    assert rows == [10, 10, 10, 3]


def losses_and_gradients(model, *batch, **options):
    loss = Objective(model, options.pop("chunk", None))(*batch, **options)
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("chunk", [None, 1, 3, 7, 32])
@pytest.mark.parametrize("share", [0.03, 0.3, 1.0])
def test_logits_of_the_targets_alone_change_neither_loss_nor_gradients(model, share, chunk):
    tokens, labels, ids = example(documents=True)
    labels = torch.where(torch.rand(3, 11) < share, tokens, IGNORED)
    labels[1, 4] = 7  # at least one
    wanted = losses_and_gradients(model, tokens, labels, ids)
    found = losses_and_gradients(model, tokens, labels, ids, few_targets=True, chunk=chunk)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 4])
def test_no_target_at_all_is_a_loss_of_zero_with_gradients_of_zero(model, chunk):
    """As a share of a batch may have it. Every parameter still gets a gradient: FSDP2 waits for all of them."""
    tokens, _, _ = example()
    found = losses_and_gradients(model, tokens, torch.full_like(tokens, IGNORED), None, few_targets=True, chunk=chunk)
    assert all(value is not None and not value.any() for value in found)


def test_few_targets_have_few_logits(model):
    tokens, labels, _ = example()
    rows = []
    model.lm_head.register_forward_hook(lambda _, __, logits: rows.append(len(logits)))
    Objective(model, 10)(tokens, labels, None, few_targets=True)
    targets = int((labels != IGNORED).sum())
    assert rows == [min(10, targets - start) for start in range(0, targets, 10)]


def test_their_number_is_data_so_fake_tensors_take_all_logits(model):
    """`iha plan` runs on fake tensors, which do not know how many targets there are."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        tokens = torch.zeros(2, 8, dtype=torch.long)
        assert Objective(model)(tokens, tokens, None).shape == ()
        with pytest.raises(DynamicOutputShapeException):
            Objective(model)(tokens, tokens, None, few_targets=True)


def test_low_precision_logits_are_summed_in_float32(model):
    low = Objective(model.to(torch.bfloat16))
    tokens, labels, _ = example()
    loss = low(tokens, labels, None)
    assert loss.dtype == torch.float32
    logits = model(tokens, use_cache=False).logits.float()
    wanted = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)
