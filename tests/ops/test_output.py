"""The gate and the exclusion of the own value, against their published formulas, written out per token and head."""

import pytest
import torch
from torch import Tensor

from iha.ops.output import exclude_own_value, gate_heads

B, N, H, G, D = 2, 5, 4, 2, 6


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["headwise", "elementwise"])
def test_the_gate_is_its_formula(kind: str) -> None:
    """Y' = Y ⊙ σ(X Wθ) (arXiv 2505.06708), with a score per head or per feature."""
    out, scores = drawn(B, N, H, D), drawn(B, N, H if kind == "headwise" else H * D)
    found = gate_heads(out, scores)
    for b, n, h, d in torch.cartesian_prod(*(torch.arange(size) for size in (B, N, H, D))).tolist():
        score = scores[b, n, h if kind == "headwise" else h * D + d]
        assert found[b, n, h, d].item() == pytest.approx((out[b, n, h, d] / (1 + (-score).exp())).item(), abs=1e-14)


def test_the_exclusion_is_its_formula() -> None:
    """z = y - (yᵀv) v / ‖v‖² (arXiv 2603.09078); query head h has the value of KV head h*G // H."""
    out, own = drawn(B, N, H, D), drawn(B, N, G, D)
    found = exclude_own_value(out, own)
    for b, n, h in torch.cartesian_prod(*(torch.arange(size) for size in (B, N, H))).tolist():
        y, v = out[b, n, h], own[b, n, h * G // H]
        torch.testing.assert_close(found[b, n, h], y - (y @ v) * v / (v @ v), atol=1e-14, rtol=0)
        assert abs(found[b, n, h] @ v) < 1e-13


def test_what_a_token_has_of_its_own_is_gone() -> None:
    """An output that is the own value becomes zero. A zero value removes nothing and has finite gradients."""
    own = drawn(B, N, H, D)
    assert exclude_own_value(3 * own, own).abs().max() < 1e-14
    out, nothing = drawn(B, N, H, D).requires_grad_(), torch.zeros(B, N, H, D, dtype=torch.float64, requires_grad=True)
    kept = exclude_own_value(out, nothing)
    assert torch.equal(kept, out)
    gradients = torch.autograd.grad(exclude_own_value(0 * out, nothing).sum(), (out, nothing))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_gradients() -> None:
    out, own = drawn(1, 3, H, D).requires_grad_(), drawn(1, 3, G, D).requires_grad_()
    assert torch.autograd.gradcheck(exclude_own_value, (out, own))
    assert torch.autograd.gradcheck(gate_heads, (out, drawn(1, 3, H * D).requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_rounded_once(dtype: torch.dtype) -> None:
    """The error is at most twice that of the plain formula in the same precision."""
    out, own = drawn(64, N, H, D).to(dtype), drawn(64, N, H, D).to(dtype)
    exact = exclude_own_value(out.double(), own.double())
    plain = out - (out * own).sum(-1, keepdim=True) * own / own.square().sum(-1, keepdim=True)
    found = exclude_own_value(out, own)
    assert found.dtype == dtype
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max()
