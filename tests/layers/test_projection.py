"""A linear layer is left alone where anything but a product is asked of it."""

import pytest
import torch
from torch import nn

from iha.layers.projection import normalise, project
from iha.ops import native


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


@pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("bias", [False, True])
def test_one_token_is_the_layer(bias: bool) -> None:
    linear, x = nn.Linear(70, 30, bias), torch.randn(1, 1, 70)
    with torch.no_grad():
        torch.testing.assert_close(project(linear, x), linear(x), atol=1e-6, rtol=1e-5)


def test_hooks_subclasses_and_replaced_forwards_are_called() -> None:
    x = torch.randn(1, 1, 16)
    hooked, replaced, doubled = nn.Linear(16, 4), nn.Linear(16, 4), Doubled(16, 4)
    hooked.register_forward_hook(lambda *_: torch.zeros(1, 1, 4))
    replaced.forward = lambda x: torch.ones(1, 1, 4)  # type: ignore[method-assign]
    with torch.no_grad():
        assert not project(hooked, x).any()
        assert project(replaced, x).all()
        torch.testing.assert_close(project(doubled, x), doubled(x))


def test_gradients_and_several_tokens_are_torchs() -> None:
    linear, x = nn.Linear(16, 4), torch.randn(1, 1, 16, requires_grad=True)
    project(linear, x).sum().backward()
    assert linear.weight.grad is not None
    more = torch.randn(1, 3, 16)
    torch.testing.assert_close(project(linear, more), linear(more), atol=0, rtol=0)


@pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("width", [5, 64, 250])
def test_the_norm_of_one_token_is_the_norm(width: int) -> None:
    norm, x = nn.RMSNorm(width, 1e-5), torch.randn(1, 1, width)
    with torch.no_grad():
        norm.weight.normal_()
        torch.testing.assert_close(normalise(norm, x), norm(x), atol=1e-6, rtol=1e-5)
        norm.register_forward_hook(lambda *_: torch.zeros(1))
        assert not normalise(norm, x).any()
