"""Strassen attention against the `strassen-attention` package, plain attention, and its definition at large logits."""

import pytest
import torch

from iha.ops.multihead import multihead_attention
from iha.ops.strassen import strassen_attention, strassen_attention_reference


def heads(B: int = 2, N: int = 9, H: int = 4, D: int = 6) -> list[torch.Tensor]:
    return [torch.randn(B, N, H, D, dtype=torch.float64) for _ in range(5)]


@pytest.mark.parametrize("causal", ["virtual", None])
def test_agrees_with_the_strassen_attention_package(causal: str | None) -> None:
    """The package scales q·k1 and q·k2 by 1/√D but not k1·k2. With k·√s and q/√s all three are scaled by s."""
    package = pytest.importorskip("strassen_attention.strassen_attention")
    q, k1, k2, v1, v2 = heads()
    s = 6**-0.5
    first = [t.transpose(1, 2) for t in (q / s**0.5, k1 * s**0.5, k2 * s**0.5, v1, v2)]
    wanted = package.strassen_attend(*first, causal=causal is not None)
    found = strassen_attention(q, k1, k2, v1, v2, causal=causal)
    torch.testing.assert_close(found, wanted.transpose(1, 2), atol=1e-12, rtol=0)


def test_without_second_keys_it_is_multi_head_attention() -> None:
    q, k, _, v, _ = heads()
    found = strassen_attention(q, k, torch.zeros_like(k), v, torch.ones_like(v))
    torch.testing.assert_close(found, multihead_attention(q, k, v), atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [1, 5, 20, 100])
def test_stays_exact_where_a_product_of_exponentials_underflows(size: float) -> None:
    """Logits up to some thousands. The rows that no factoring can save are computed by the definition.

    Gradients of a saturated softmax vanish by cancellation: exactly in softmax's own backward, to rounding in that of a
    quotient. Hence the floor, relative to what cancels.
    """
    tensors = [t.float() for t in heads(N=24)]
    tensors[:3] = [size * t for t in tensors[:3]]
    exact = [t.double().requires_grad_() for t in tensors]
    rounded = [t.requires_grad_() for t in tensors]
    truth, plain = strassen_attention_reference(*exact), strassen_attention_reference(*rounded)
    fast = strassen_attention(*rounded, chunk=5)
    direction = torch.randn_like(truth)
    truths = [truth, *torch.autograd.grad(truth, exact, direction)]
    plains = [plain, *torch.autograd.grad(plain, rounded, direction.float())]
    fasts = [fast, *torch.autograd.grad(fast, rounded, direction.float())]
    for n, (wanted, one, other) in enumerate(zip(truths, plains, fasts, strict=True)):
        assert other.isfinite().all()
        floor = wanted.abs().max() if n == 0 else 20 * size
        allowed = 3 * (one.double() - wanted).abs().max() + torch.finfo(torch.float32).eps * floor
        assert (other.double() - wanted).abs().max() <= allowed


def test_rotating_all_positions_changes_nothing() -> None:
    """RoPE makes all three products relative: the last rows do not depend on how many tokens came before the window."""
    tensors = heads(B=1, N=12)
    whole = strassen_attention(*tensors, window=4, rope_theta=100.0)
    tail = strassen_attention(*(t[:, 5:] for t in tensors), window=4, rope_theta=100.0)
    torch.testing.assert_close(whole[:, 8:], tail[:, 3:], atol=1e-12, rtol=0)
