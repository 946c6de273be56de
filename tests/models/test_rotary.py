"""RoPE types: those the model computes, and the others refused, also when they are set late."""

import pytest
import torch
from tiny import tiny_config

from iha.models import IHAForCausalLM


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", "proportional"])
def test_a_type_set_after_construction_is_refused(rope_type: str) -> None:
    config = tiny_config()
    config.rope_parameters = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(ValueError, match=f"do not depend on the length; got '{rope_type}'"):
        IHAForCausalLM(config)


def test_signature_is_that_of_transformers() -> None:
    rotary = IHAForCausalLM(tiny_config()).model.rotary_emb
    x, positions = torch.randn(2, 7, 32), torch.arange(7)[None]
    cos, sin = rotary(x, positions)
    assert cos.shape == sin.shape == (1, 7, 8)  # (B, N, D), both halves alike
    torch.testing.assert_close(cos, torch.cat((cos[..., :4], cos[..., :4]), dim=-1))
    torch.testing.assert_close(cos.square() + sin.square(), torch.ones_like(cos))
