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
    assert rotary.config.rope_parameters["rope_type"] == "default"
    frequency = rotary.config.rope_parameters["rope_theta"] ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    angle = (torch.arange(7)[:, None] * frequency).repeat(1, 2)[None]  # (B, N, D), both halves alike
    torch.testing.assert_close(cos, angle.cos().float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(sin, angle.sin().float(), atol=1e-6, rtol=0)
