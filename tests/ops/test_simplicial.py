"""2-simplicial attention against the `simplicial-attention` package, Meta's rule for windows, and plain attention."""

import pytest
import torch

from iha.ops.multihead import multihead_attention
from iha.ops.simplicial import simplicial_attention
from support import outputs_and_gradients


def heads(B: int = 2, N: int = 9, H: int = 4, G: int = 2, D: int = 6) -> list[torch.Tensor]:
    return [torch.randn(B, N, n, D, dtype=torch.float64) for n in (H, G, G, G, G)]


@pytest.mark.parametrize("causal", ["virtual", None])
def test_agrees_with_the_simplicial_attention_package(causal: str | None) -> None:
    package = pytest.importorskip("simplicial_attention.simplicial_attention")
    q, k1, k2, v1, v2 = heads()
    first = [t.transpose(1, 2) for t in (q, k1, k2, v1, v2)]
    wanted = package.naive_two_simplicial_attend(first[0], first[1:3], first[3:], causal=causal is not None)
    found = simplicial_attention(q, k1, k2, v1, v2, causal=causal)
    torch.testing.assert_close(found, wanted.transpose(1, 2), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("w1", "w2"), [(5, 2), (1, 4), (None, 3)])
def test_windows_count_the_token_itself(w1: int | None, w2: int) -> None:
    """Written out token by token: i - w1 < j ≤ i and i - w2 < k ≤ i, as in Meta's reference."""
    q, k1, k2, v1, v2 = heads(B=1, H=1, G=1)
    found = simplicial_attention(q, k1, k2, v1, v2, window=(w1, w2), max_block_scores=30)
    for i in range(9):
        js, ks = range(max(0, i - (w1 or 99) + 1), i + 1), range(max(0, i - w2 + 1), i + 1)
        pairs = [(j, k) for j in js for k in ks]
        logits = torch.stack([(q[0, i, 0] * k1[0, j, 0] * k2[0, k, 0]).sum() for j, k in pairs]) / 6**0.5
        values = torch.stack([v1[0, j, 0] * v2[0, k, 0] for j, k in pairs])
        torch.testing.assert_close(found[0, i, 0], torch.softmax(logits, dim=0) @ values, atol=1e-12, rtol=0)


def test_constant_second_keys_and_values_are_multi_head_attention() -> None:
    q, k1, _, v1, _ = heads()
    ones = torch.ones_like(k1)
    found = simplicial_attention(q, k1, ones, v1, ones, window=(4, None))
    torch.testing.assert_close(found, multihead_attention(q, k1, v1, window=4), atol=1e-12, rtol=0)


def test_blocks_do_not_change_the_result() -> None:
    tensors = heads(N=17)
    whole = simplicial_attention(*tensors)
    for scores in (1, 500, 5000):
        found = simplicial_attention(*tensors, max_block_scores=scores)
        torch.testing.assert_close(found, whole, atol=1e-13, rtol=0)


def test_large_logits_do_not_overflow() -> None:
    q, *rest = (t.float() for t in heads(N=33))
    out = simplicial_attention(100 * q, *rest, max_block_scores=2000)
    exact = simplicial_attention(100 * q.double(), *(t.double() for t in rest))
    torch.testing.assert_close(out.double(), exact, atol=1e-3, rtol=0)


@pytest.mark.parametrize("window", [0, (3, 0), (-1, 2), (1, 2, 3)])
def test_bad_windows_are_named(window: object) -> None:
    with pytest.raises(ValueError, match=str(window).replace("(", r"\(").replace(")", r"\)")):
        simplicial_attention(*heads(), window=window)  # type: ignore[arg-type]


def test_many_blocks_do_not_cost_precision() -> None:
    """Sums over blocks are kept in float32: as good in bfloat16 with hundreds of blocks as with one."""
    tensors = [t.bfloat16() for t in heads(B=1, N=48, H=2, G=2)]
    exact = outputs_and_gradients(simplicial_attention, [t.double() for t in tensors])
    one, many = (outputs_and_gradients(simplicial_attention, tensors, max_block_scores=n) for n in (1 << 21, 1))
    for name, wanted in exact.items():
        error, bound = ((found[name] - wanted).square().mean().sqrt() for found in (many, one))
        assert error <= 1.1 * bound, f"{name}: {error:.2e} in blocks, {bound:.2e} in one"
