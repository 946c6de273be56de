"""Attention implementations: ours by name, everybody else's refused with one clear sentence."""

import pytest
import torch
from tiny import tiny_config, tiny_model, tokens
from transformers import LlamaConfig, LlamaForCausalLM

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


SAME = {"num_key_value_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rms_norm_eps": 1e-6}
LIKE_LLAMA = {
    "global": {},
    # One pseudo-head, unmixed: multi-head attention.
    "iha-everywhere": {"num_pseudo_heads": 1, "mixing_init": "identity"},
}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", LIKE_LLAMA)
def test_in_training_the_weights_are_dropped_that_llama_drops(kind: str, implementation: str) -> None:
    """The same seed, the same weights, the same logits and gradients; with a cache too, as is the default."""
    model = tiny_model(kind, **SAME, **LIKE_LLAMA[kind], attention_dropout=0.3).train()  # type: ignore[arg-type]
    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "pad_token_id",
        "max_position_embeddings", "tie_word_embeddings", "attention_dropout",
    )  # fmt: skip
    fields = {name: getattr(model.config, name) for name in names}
    llama = LlamaForCausalLM(LlamaConfig(**SAME, **fields, bos_token_id=None, eos_token_id=None)).train()
    assert llama.load_state_dict(model.state_dict(), strict=False).missing_keys == []
    x = tokens(2, 9)
    found = []
    for network in (model, llama):
        network.set_attn_implementation(implementation)
        torch.manual_seed(3)
        logits = network(x).logits
        (gradient,) = torch.autograd.grad(logits.square().sum(), network.model.layers[0].self_attn.q_proj.weight)
        found.append((logits, gradient, network.eval()(x).logits))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    logits, _, without = found[0]
    assert not torch.allclose(logits, without, atol=1e-2)


def test_every_layer_drops_in_training_alone() -> None:
    model, plain = tiny_model(attention_dropout=0.5), tiny_model()
    assert [layer.self_attn.dropout for layer in model.model.layers] == [0.5] * 3
    x = tokens(2, 12)
    assert torch.equal(model(x).logits, plain(x).logits)
    first, second = model.train()(x, use_cache=False).logits, model(x, use_cache=False).logits
    assert not torch.allclose(first, second)
    gradients = []
    for checkpointing in (True, False):  # what is computed again drops the same
        model.gradient_checkpointing_enable() if checkpointing else model.gradient_checkpointing_disable()
        torch.manual_seed(0)
        loss = model(x, labels=x, use_cache=False).loss
        gradients.append(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad]))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_the_mean_of_what_is_dropped_is_what_is_not() -> None:
    """Of one layer's attention, which is linear in its weights: IHA with a window and several pseudo-heads."""
    model = tiny_model("iha", num_hidden_layers=1, attention_dropout=0.5)
    attended: list[torch.Tensor] = []
    model.model.layers[0].self_attn.register_forward_hook(lambda _, __, out: attended.append(out[0]))
    x = tokens(1, 10)
    with torch.no_grad():
        model(x)
        model.train()
        torch.manual_seed(0)
        for _ in range(400):
            model(x, use_cache=False)
    exact, draws = attended[0], torch.stack(attended[1:])
    error = (draws.mean(0) - exact) / (draws.std(0) / 20 + 1e-12)  # in standard errors
    assert (draws.std(0) > 0).any()
    assert error.square().mean().sqrt() < 1.3
