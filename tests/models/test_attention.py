"""Attention implementations: ours by name, everybody else's refused with one clear sentence."""

import pytest
import torch
from tiny import tiny_config, tiny_model, tokens

from iha.models import IHAForCausalLM
from iha.models.attention import BACKENDS

FOREIGN = ["flash_attention_3", "kernels-community/flash-attn", "paged|eager", "vllm", "sglang", "sdpa_paged", "magic"]


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_implementations_are_named_and_refused(name: str) -> None:
    supported = "supported are eager, sdpa, flex_attention, flash_attention_2"
    with pytest.raises(ValueError, match=rf'attn_implementation="{name.replace("|", ".")}".*{supported}'):
        IHAForCausalLM._from_config(tiny_config(), attn_implementation=name)
    model = tiny_model()
    with pytest.raises(ValueError, match=supported):
        model.set_attn_implementation(name)
    model.config._attn_implementation_internal = name  # past all checks
    with pytest.raises(ValueError, match=supported):
        model(tokens(1, 3))


def test_flash_needs_no_package_and_is_not_replaced_by_a_kernel_of_the_hub() -> None:
    model = IHAForCausalLM._from_config(tiny_config(), attn_implementation="flash_attention_2")
    assert model.config._attn_implementation == "flash_attention_2"
    with pytest.raises(ValueError, match=r"backend='flash' cannot do this: .* the tensors are on 'cpu'"):
        model(tokens(1, 3))


def test_the_default_is_sdpa() -> None:
    assert IHAForCausalLM._from_config(tiny_config()).config._attn_implementation == "sdpa"
    assert set(BACKENDS) == {"eager", "sdpa", "flex_attention", "flash_attention_2"}


def test_continuous_batching_is_refused() -> None:
    model = tiny_model()
    for run in (
        lambda: model.generate_batch([[1, 2, 3]]),
        lambda: model.init_continuous_batching(),
        lambda: model.continuous_batching_context_manager().__enter__(),
    ):
        with pytest.raises(ValueError, match=r"continuous batching .* is not supported"):
            run()


@torch.no_grad()
def test_an_early_exit_drafts_with_fewer_layers() -> None:
    """The tokens are those of the whole model; its first layers alone make the drafts."""
    model, x = tiny_model("global"), tokens(1, 6)
    calls: list[int] = []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, *_: calls.append(module.layer_idx))
    expected = model.generate(x, max_new_tokens=8, do_sample=False)
    calls.clear()
    found = model.generate(x, max_new_tokens=8, do_sample=False, assistant_early_exit=1)
    torch.testing.assert_close(found, expected)
    assert calls.count(0) > calls.count(2) > 0
