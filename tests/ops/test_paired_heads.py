"""Paired heads against the view written out, and as interleaved heads with one-hot weights."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import iha
from iha.layers.initialisation import paired_heads
from iha.ops.paired_heads import paired_head_attention


def inputs(H: int = 6, G: int = 6, N: int = 11, D: int = 8) -> list[Tensor]:
    return [torch.randn(2, N, heads, D, dtype=torch.float64) for heads in (H, G, G)]


def one_hot(H: int, G: int) -> list[Tensor]:
    """alpha and R of the initialisation."""
    shapes = ((H, H // 2, 2), (G, G // 2, 2), (G, G // 2, 2), (H, H))
    mixing = [torch.full(shape, torch.nan, dtype=torch.float64) for shape in shapes]
    paired_heads(*mixing, "virtual")
    return mixing


def by_view(q: Tensor, k: Tensor, v: Tensor, rope_theta: float | None = None) -> Tensor:
    """modded-nanogpt: (B, N, H, D) in memory is (B, 2N, H/2, D) in memory; causal attention; the view back."""
    B, N, H, D = q.shape
    q, k, v = (t.view(B, 2 * N, t.shape[2] // 2, D) for t in (q, k, v))
    if rope_theta is not None:
        q, k = (iha.reference.rotate(t, torch.arange(2 * N), rope_theta) for t in (q, k))
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).reshape(B, N, H, D)


@pytest.mark.parametrize(("H", "G"), [(6, 6), (8, 4), (2, 2)])
@pytest.mark.parametrize("rope_theta", [None, 100.0])
def test_it_is_the_view_and_so_are_one_hot_interleaved_heads(H: int, G: int, rope_theta: float | None) -> None:
    tensors = inputs(H, G)
    wanted = by_view(*tensors, rope_theta)
    found = paired_head_attention(*tensors, rope_theta=rope_theta)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    for operator in (iha.interleaved_head_attention, iha.reference.interleaved_head_attention):
        mixed = operator(*tensors, *one_hot(H, G), rope_theta=rope_theta)
        torch.testing.assert_close(mixed, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("positions", ["head", "row"])
def test_where_their_rope_differs_from_ours(positions: str) -> None:
    """Their table turns head m by 2n + m % 2, but the view puts it into row 2n + m // (H/2): ours follows the row."""
    H, theta = 6, 100.0
    q, k, v = inputs(H)
    shift = torch.arange(H) % 2 if positions == "head" else torch.arange(H) // (H // 2)
    place = 2 * torch.arange(q.shape[1])[:, None] + shift  # (N, H)

    def turned(t: Tensor) -> Tensor:
        heads = [iha.reference.rotate(t[:, :, [h]], place[:, h], theta) for h in range(H)]
        return torch.cat(heads, dim=2)

    theirs, ours = by_view(turned(q), turned(k), v), paired_head_attention(q, k, v, rope_theta=theta)
    if positions == "row":
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    else:
        assert (ours - theirs).abs().max() > 0.01


@pytest.mark.parametrize("causal", ["virtual", "token", None])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("Nq", [11, 1])
def test_masks_and_gradients_are_those_of_interleaved_heads(causal: Any, window: int | None, Nq: int) -> None:
    q, k, v = (t.requires_grad_() for t in inputs(8, 4))
    options: dict[str, Any] = {
        "causal": causal, "window": window, "rope_theta": 100.0,
        "key_padding_mask": torch.arange(11)[None] >= torch.tensor([[0], [3]]),
        "document_ids": (torch.arange(11) // 4).expand(2, 11),
    }  # fmt: skip
    found = paired_head_attention(q[:, 11 - Nq :], k, v, **options)
    wanted = iha.reference.interleaved_head_attention(q[:, 11 - Nq :], k, v, *one_hot(8, 4), **options)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    direction = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, (q, k, v), direction), torch.autograd.grad(wanted, (q, k, v), direction), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_odd_heads_are_named() -> None:
    with pytest.raises(ValueError, match="num_heads=3"):
        paired_head_attention(*inputs(3, 3))
    with pytest.raises(ValueError, match="num_kv_heads=1"):
        paired_head_attention(*inputs(2, 1))
    q, k, v = inputs(4, 4)
    with pytest.raises(ValueError, match=r"v \(2, 11, 2, 8\)"):
        paired_head_attention(q, k, v[:, :, :2])
