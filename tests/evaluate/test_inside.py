"""What the explorer shows is what the model computes."""

import base64

import numpy as np
import pytest
import torch

from iha import IHAConfig, IHAForCausalLM
from iha.evaluate.inside import algorithm_steps, attention_maps, look_inside, require_common_index

TOKENS = torch.tensor([3, 1, 4, 1, 5, 9])


@pytest.fixture(params=[{}, {"collapse": "full"}, {"causal": "token", "rope_positions": "token"}], ids=str)
def model(request):
    torch.manual_seed(0)
    config = IHAConfig(
        vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=5, num_attention_heads=4,
        num_key_value_heads=2, num_pseudo_heads=2, max_position_embeddings=64, mixing_init="random", **request.param,
    )  # fmt: skip
    return IHAForCausalLM(config)


def unpacked(tensor):
    steps = np.frombuffer(base64.b64decode(tensor["bytes"]), dtype=np.int8).reshape(tensor["shape"])
    return torch.tensor(steps / 127 * tensor["largest"])


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"num_pseudo_keys": 3, "causal": "token", "rope_positions": "token"}, "num_pseudo_keys=3"),
        ({"num_mixed_heads": 2, "collapse": "full", "mixing_init": "random"}, "num_mixed_heads=2"),
        ({"attention": "paired_heads"}, "num_mixed_heads=2"),
    ],
)
def test_layers_with_other_numbers_are_refused(numbers, named):
    config = IHAConfig(vocab_size=16, hidden_size=32, intermediate_size=64, num_attention_heads=4, **numbers)
    with pytest.raises(ValueError, match=f"layer 0 has .*{named}"):
        require_common_index(IHAForCausalLM(config))


def test_the_steps_lead_to_what_the_layer_gives_its_output_projection(model):
    given = {}
    hooks = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda _, args, i=i: given.__setitem__(i, args[0]))
        for i, layer in enumerate(model.model.layers)
    ]
    with torch.no_grad():
        model(input_ids=TOKENS[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    steps = algorithm_steps(model, TOKENS)
    assert set(steps) == {"0", "1", "2", "3"}  # the fifth layer is global multi-head attention
    for index, tensors in steps.items():
        shown, expected = unpacked(tensors["out"]), given[int(index)][0].unflatten(-1, (4, 8))
        assert (shown - expected).abs().max() <= 0.501 * tensors["out"]["largest"] / 127


def test_the_weights_of_the_steps_are_the_model_s(model):
    maps = attention_maps(model, TOKENS)
    for index, tensors in algorithm_steps(model, TOKENS).items():
        assert (unpacked(tensors["weights"]) - maps[int(index)]).abs().max() <= 0.501 / 127


def test_looking_changes_nothing(model):
    before = model(input_ids=TOKENS[None], use_cache=False).logits
    implementation = model.config._attn_implementation
    attention_maps(model, TOKENS)
    assert model.config._attn_implementation == implementation
    assert torch.equal(model(input_ids=TOKENS[None], use_cache=False).logits, before)


def test_a_text_without_tokens_is_refused(model):
    with pytest.raises(ValueError, match="has no tokens: ''"):
        look_inside({"IHA": model}, lambda text, **_: {"input_ids": []}, [""])
