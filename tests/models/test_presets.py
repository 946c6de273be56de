"""Presets have the size they are called, and the paper's model is the paper's."""

import pytest
import torch

from iha.models.modeling import IHAForCausalLM
from iha.models.presets import preset


def test_the_papers_model_on_the_meta_device() -> None:
    """2.373 B, and the mixing weights: 21 IHA layers of (3H²P + HP) numbers."""
    config = preset("paper-2.4b")
    with torch.device("meta"):
        model = IHAForCausalLM(config)
    mixing = sum(p.numel() for n, p in model.named_parameters() if "alpha" in n or "collapse" in n)
    total = sum(p.numel() for p in model.parameters())
    assert total - mixing == 128256 * 2560 + 26 * (4 * 2560**2 + 2 * 2560 * 10240 + 2 * 2560) + 2560 == 2_373_194_240
    local = [layer for layer in config.layers if layer.is_interleaved]
    assert len(local) == 21
    assert mixing == 21 * (3 * 20**2 * 2 + 20 * 2)
    assert {layer.window for layer in local} == {8192 // (2 * 2**2)}
    assert (config.head_dim, config.num_attention_heads, config.rope_parameters["rope_theta"]) == (128, 20, 500_000.0)


@pytest.mark.parametrize(("name", "millions"), [("1m", 1), ("10m", 10), ("50m", 50), ("160m", 160)])
def test_presets_have_the_size_they_are_called(name: str, millions: int) -> None:
    with torch.device("meta"):
        model = IHAForCausalLM(preset(name))
    assert abs(model.num_parameters() / (1e6 * millions) - 1) < 0.06
    assert model.config.intermediate_size == 4 * model.config.hidden_size


def test_unknown_preset() -> None:
    with pytest.raises(ValueError, match=r"no preset '7b'; there are 1m, 10m, .*paper-2.4b"):
        preset("7b")


def test_any_field_can_be_changed_and_the_feed_forward_follows_the_width() -> None:
    assert preset("1m", hidden_size=192).intermediate_size == 768
    assert preset("1m", hidden_size=192, intermediate_size=100).intermediate_size == 100
    config = preset("1m", attention="global", max_position_embeddings=64)
    assert (config.attention, config.max_position_embeddings, config.gated_mlp) == ("global", 64, False)
