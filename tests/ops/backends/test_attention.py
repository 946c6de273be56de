"""Narrow heads filled up with zeros for the CPU kernel, and scales that are not positive: the formula all the same."""

from typing import Any

import pytest
import torch
from torch import Tensor

import iha
from iha.ops.backends import kernels
from iha.ops.backends.attention import attend
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility
from support import Shape, assert_all_close, outputs_and_gradients
from support import tensors as random_tensors


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


@pytest.mark.parametrize("scale", [0.0, -0.0, -0.7])
@pytest.mark.parametrize(
    "options",
    [{"backend": "sdpa"}, {"backend": "sdpa", "causal": "token"}, {"backend": "banded", "window": 5}]
    + [{"causal": causal, "window": window} for causal in ("virtual", "token", None) for window in (None, 1, 5)],
    ids=str,
)  # fmt: skip
def test_a_scale_that_is_not_positive(options: dict[str, Any], scale: float) -> None:
    """torch multiplies the mask's -inf by the scale: NaN for 0, and everything hidden is seen for less."""
    inputs = random_tensors(Shape(N=21, P=2, D=4))
    want = outputs_and_gradients(
        iha.reference.interleaved_head_attention,
        inputs,
        scale=scale,
        **{k: options[k] for k in options if k != "backend"},
    )
    assert_all_close(outputs_and_gradients(iha.interleaved_head_attention, inputs, scale=scale, **options), want)
