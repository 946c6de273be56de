"""Plain attention by either CPU kernel, narrow heads filled up with zeros, scales below zero: the same formula."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import iha
from iha.ops import native
from iha.ops.backends import attention, kernels
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


@pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("causal", [None, "virtual"])
@pytest.mark.parametrize(("N", "P", "G", "D"), [(128, 1, 4, 32), (131, 1, 2, 16), (67, 2, 4, 8), (70, 3, 1, 32)])
def test_long_plain_attention_by_our_kernel(N: int, P: int, G: int, D: int, causal: str | None) -> None:
    """As exact as SDPA, forward and backward, narrow heads included; the named backend remains SDPA."""
    tensors = [torch.randn(2, N * P, h, D) for h in (4, G, G)]

    def function(*tensors: Tensor, backend: str) -> Tensor:
        return attend(*tensors, Masking(Visibility(causal, num_pseudo_heads=P)), backend=backend)  # type: ignore[arg-type]

    exact = outputs_and_gradients(function, [t.double() for t in tensors], backend="sdpa")
    natively = outputs_and_gradients(function, tensors, backend="auto")
    by_torch = outputs_and_gradients(function, tensors, backend="sdpa")
    for name, wanted in exact.items():
        assert not torch.equal(natively[name], by_torch[name])  # another kernel, so another rounding
        error, bound = ((found[name] - wanted).square().mean().sqrt() for found in (natively, by_torch))
        assert error <= 2 * bound, f"{name}: {error:.2e}, torch {bound:.2e}"


@pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
def test_what_only_torch_can_do_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small calls, cross-attention, dropout, transforms and FLOP counters do not reach our kernel."""
    monkeypatch.setattr(attention, "tiled_attention", lambda *_: pytest.fail("our kernel was called"))
    x = torch.randn(2, 200, 2, 16)
    plain = Masking(Visibility(None))
    attend(x[:, :100], x[:, :100], x[:, :100], plain)  # 2 x 2 x 100 x 100 scores
    attend(x, x[:, :150], x[:, :150], plain)
    attend(x, x, x, plain, dropout_p=0.5)
    torch.func.vmap(lambda q: attend(q[None], q[None], q[None], plain))(x)
    with FlopCounterMode(display=False):
        attend(x, x, x, plain)
    with pytest.raises(pytest.fail.Exception, match="our kernel"):
        attend(x, x, x, plain)


@pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dynamic", [False, True])
def test_our_kernel_in_one_compiled_graph(dynamic: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return attend(x, x, x, Masking(Visibility("virtual")))

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for N in (200, 230):
        x = torch.randn(2, N, 2, 16)
        assert torch.equal(compiled(x), function(x))
