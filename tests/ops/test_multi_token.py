"""Multi-token attention against one `conv2d` over whole maps, as Meta's code does it."""

import pytest
import torch
import torch.nn.functional as F

from iha.ops.multi_token import group_norm, multi_token_attention
from iha.ops.multihead import multihead_attention


def heads(B: int = 2, N: int = 12, H: int = 4, D: int = 6) -> list[torch.Tensor]:
    return [torch.randn(B, N, H, D, dtype=torch.float64) for _ in range(3)]


def test_agrees_with_one_convolution_over_the_whole_map() -> None:
    """Zeros above the diagonal, pad cq - 1 rows on top and ck // 2 keys on both sides, convolve, mask, softmax, mix."""
    N, H, D, cq, ck, ch = 12, 4, 6, 3, 5, 2
    q, k, v = heads()
    theirs = torch.randn(H, 1, cq, ck, dtype=torch.float64)  # their last row is the query itself
    head_kernel = torch.randn(H // ch, ch, ch, dtype=torch.float64)
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    logits = torch.einsum("bihd,bjhd->bhij", q, k).masked_fill(future, 0) * D**-0.5
    mixed = F.conv2d(F.pad(logits, (ck // 2, ck // 2, cq - 1, 0)), theirs, groups=H)
    weights = mixed.masked_fill(future, -torch.inf).softmax(dim=-1)
    groups = [
        torch.stack([sum(weights[:, g * ch + s] * head_kernel[g, s, t] for s in range(ch)) for t in range(ch)], dim=1)
        for g in range(H // ch)
    ]
    wanted = torch.einsum("bhij,bjhd->bihd", torch.cat(groups, dim=1), v)
    found = multi_token_attention(q, k, v, theirs.squeeze(1).flip(1), head_kernel, chunk=5)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_identity_kernels_are_multi_head_attention() -> None:
    q, k, v = heads()
    kernel = torch.zeros(4, 6, 11, dtype=torch.float64)
    kernel[:, 0, 5] = 1
    eye = torch.eye(4, dtype=torch.float64)[None]
    found = multi_token_attention(q, k, v, kernel, eye, window=5, rope_theta=1e4)
    torch.testing.assert_close(found, multihead_attention(q, k, v, window=5, rope_theta=1e4), atol=1e-12, rtol=0)


def test_left_padding_is_as_if_it_were_not_there() -> None:
    q, k, v = heads()
    kernels = torch.randn(4, 3, 4, dtype=torch.float64), torch.randn(2, 2, 2, dtype=torch.float64)
    mask = torch.arange(12).expand(2, 12) >= 4
    padded = multi_token_attention(q, k, v, *kernels, key_padding_mask=mask, chunk=5)
    alone = multi_token_attention(*(t[:, 4:] for t in (q, k, v)), *kernels)
    torch.testing.assert_close(padded[:, 4:], alone, atol=1e-12, rtol=0)


def test_group_norm() -> None:
    x, weight = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    wanted = 0.8 * weight * x / torch.sqrt((x**2).mean(dim=-1, keepdim=True) + 1e-5)
    torch.testing.assert_close(group_norm(x, weight, 0.2), wanted, atol=1e-13, rtol=0)


def test_bad_kernels_are_named() -> None:
    q, k, v = heads()
    kernel, eye = torch.randn(4, 2, 3, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[None]
    with pytest.raises(ValueError, match=r"key_query_kernel.*\(3, 2, 3\)"):
        multi_token_attention(q, k, v, kernel[:3], eye)
    with pytest.raises(ValueError, match=r"head_kernel.*\(1, 3, 3\)"):
        multi_token_attention(q, k, v, kernel, eye[:, :3, :3])
    with pytest.raises(ValueError, match="all 12 tokens, got 5"):
        multi_token_attention(q[:, 7:], k, v, kernel, eye)
