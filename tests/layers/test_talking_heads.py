"""Talking heads as a layer: its definition, its start, its mixes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.call import Shared
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.ops.talking_heads import talking_heads_attention_reference
from layers.catalogue import CASES, E, G, H, assert_is_its_definition, assert_starts_as_multihead, build, left_padding


def definition(layer: TalkingHeadsAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return talking_heads_attention_reference(q, k, v, layer.mix_logits, layer.mix_weights, **options)


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("talking_heads", definition, causal, window, masked)


def test_starts_as_multi_head_attention() -> None:
    assert_starts_as_multihead(TalkingHeadsAttention)


def test_a_random_start_has_the_scale_it_says() -> None:
    layer = TalkingHeadsAttention(64, 64, init="random")
    for mix in (layer.mix_logits, layer.mix_weights):  # 4096 draws of standard deviation 1/8
        assert mix.std().item() == pytest.approx(1 / 8, rel=0.05)
        assert abs(mix.mean().item()) < 4 / 8 / 64
    assert not torch.equal(layer.mix_logits, layer.mix_weights)


def test_shown_weights_are_those_applied_to_the_values() -> None:
    layer: SelfAttention = build("talking_heads", rope_theta=None)
    x, padding = torch.randn(2, 7, E, dtype=torch.float64), left_padding(2, 7)
    shared = Shared({1: None}, "eager", with_weights=True)  # type: ignore[dict-item]
    out, weights = layer(x, key_padding_mask=padding, shared=shared)
    real = padding[:, :, None]
    torch.testing.assert_close(out * real, layer(x, key_padding_mask=padding) * real, atol=1e-12, rtol=0)
    v = layer.v_proj(x).unflatten(-1, (G, -1)).repeat_interleave(H // G, dim=2) * padding[:, :, None, None]
    heads = torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)
    torch.testing.assert_close(layer.o_proj(heads), out, atol=1e-12, rtol=0)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="dirac"):
        TalkingHeadsAttention(16, 4, init="dirac")
    with pytest.raises(ValueError, match=r"chunk .* got 0"):
        TalkingHeadsAttention(16, 4, chunk=0)
