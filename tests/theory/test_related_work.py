"""What the paper says of other mechanisms; erratum E29."""

import pytest
import torch

from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.talking_heads import TalkingHeadsAttention


@pytest.mark.parametrize(("layer", "mixes"), [(KnockingHeadsAttention, False), (TalkingHeadsAttention, True)])
def test_e29_only_talking_heads_weights_depend_on_other_heads(layer, mixes) -> None:
    """Keys of head 0 are changed. Heads 1 to 3 notice it exactly when logits or weights are mixed."""
    torch.manual_seed(0)
    H, D = 4, 8
    attention = layer(H * D, H).double()
    with torch.no_grad():
        for parameter in attention.parameters(recurse=False):  # the mixing, which starts as the identity
            parameter.copy_(torch.randn_like(parameter))
    given = {}
    attention.o_proj.register_forward_pre_hook(lambda _, args: given.__setitem__("heads", args[0]))
    x = torch.randn(1, 6, H * D, dtype=torch.float64)

    def heads() -> torch.Tensor:
        attention(x)
        return given["heads"].unflatten(-1, (H, D))  # (1, 6, H, D)

    before = heads()
    with torch.no_grad():
        attention.k_proj.weight[:D] += torch.randn(D, H * D, dtype=torch.float64)
    after = heads()
    assert not torch.allclose(before[:, :, 0], after[:, :, 0])
    assert torch.equal(before[:, :, 1:], after[:, :, 1:]) is not mixes
