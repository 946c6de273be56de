"""Narrow heads are filled up with zeros for the CPU kernel: nothing but speed may change."""

import pytest
import torch
from torch import Tensor

from iha.ops.backends import kernels
from iha.ops.backends.attention import attend
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility
from support import outputs_and_gradients


@pytest.mark.parametrize("causal", [None, "virtual"])
@pytest.mark.parametrize(("D", "G"), [(8, 4), (3, 2), (12, 1)])
def test_narrow_heads(D: int, G: int, causal: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(2, 40, h, D) for h in (4, G, G)]

    def function(*tensors: Tensor) -> Tensor:
        return attend(*tensors, Masking(Visibility(causal)))  # type: ignore[arg-type]

    exact = outputs_and_gradients(function, [t.double() for t in tensors])
    filled = outputs_and_gradients(function, tensors)
    monkeypatch.setattr(kernels, "_NARROWEST", 1)
    plain = outputs_and_gradients(function, tensors)
    for name, wanted in exact.items():
        assert filled[name].shape == wanted.shape
        error, bound = ((found[name] - wanted).square().mean().sqrt() for found in (filled, plain))
        assert error <= 2 * bound, f"{name}: {error:.2e}, unfilled {bound:.2e}"
