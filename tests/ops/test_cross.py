"""Cross-attention against the reference operator, which knows neither more queries than keys nor padded keys alone."""

import pytest
import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.cross import interleaved_cross_attention, multihead_cross_attention

B, H, G, D, P = 3, 4, 2, 6, 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def mixing(kind: str) -> tuple[Tensor, ...]:
    return drawn(H, H, P), drawn(G, G, P), drawn(G, G, P), drawn(H, P if kind == "per_head" else H * P)


def by_definition(q: Tensor, k: Tensor, v: Tensor, mixing: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """Each query alone, against the real keys of its sequence alone: nothing is masked, nothing is padded."""
    rows = [
        torch.cat(
            [
                reference.interleaved_head_attention(
                    q[b : b + 1, i : i + 1], k[b : b + 1, mask[b]], v[b : b + 1, mask[b]], *mixing, causal=None
                )
                for i in range(q.shape[1])
            ],
            dim=1,
        )
        for b in range(q.shape[0])
    ]
    return torch.cat(rows)


@pytest.mark.parametrize("kind", ["per_head", "full"])
@pytest.mark.parametrize(("Nq", "N"), [(1, 5), (4, 7), (9, 5)])
@pytest.mark.parametrize("padded", [False, True])
def test_interleaved_is_the_reference_and_so_are_its_gradients(kind: str, Nq: int, N: int, padded: bool) -> None:
    q, k, v, weights = drawn(B, Nq, H, D), drawn(B, N, G, D), drawn(B, N, G, D), mixing(kind)
    tensors = [t.requires_grad_() for t in (q, k, v, *weights)]
    mask = torch.arange(N)[None] < torch.tensor([[N], [N - 2], [1]])
    mask = mask if padded else torch.ones_like(mask)
    found, none = interleaved_cross_attention(q, k, v, *weights, key_padding_mask=mask if padded else None)
    shown, map_ = interleaved_cross_attention(q, k, v, *weights, key_padding_mask=mask, with_weights=True)
    wanted = by_definition(q, k, v, weights, mask)
    assert none is None
    assert map_ is not None
    assert map_.shape == (B, H, Nq * P, N * P)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(shown, wanted, atol=1e-12, rtol=0)
    direction = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, tensors, direction), torch.autograd.grad(wanted, tensors, direction), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("with_weights", [False, True])
def test_multihead_is_torchs(with_weights: bool) -> None:
    E, Nq, N = H * D, 7, 5
    theirs = torch.nn.MultiheadAttention(E, H, bias=False, batch_first=True, dtype=torch.float64)
    x, memory, mask = drawn(B, Nq, E), drawn(B, N, E), torch.arange(N)[None] < torch.tensor([[5], [3], [1]])
    wanted, maps = theirs(x, memory, memory, key_padding_mask=~mask, average_attn_weights=False)
    w_q, w_k, w_v = theirs.in_proj_weight.chunk(3)
    q, k, v = ((t @ w.T).unflatten(-1, (H, D)) for t, w in ((x, w_q), (memory, w_k), (memory, w_v)))
    out, weights = multihead_cross_attention(q, k, v, key_padding_mask=mask, with_weights=with_weights)
    torch.testing.assert_close(theirs.out_proj(out.flatten(2)), wanted, atol=1e-12, rtol=0)
    assert (weights is not None) is with_weights
    if weights is not None:
        torch.testing.assert_close(weights, maps, atol=1e-12, rtol=0)


@pytest.mark.parametrize("with_weights", [False, True])
def test_padding_poisons_nothing_and_an_empty_memory_gives_zeros(with_weights: bool) -> None:
    q, k, v, weights = drawn(B, 4, H, D), drawn(B, 5, G, D), drawn(B, 5, G, D), mixing("full")
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    poisoned = [t.masked_fill(~mask[:, :, None, None], torch.nan).requires_grad_() for t in (k, v)]
    out, _ = interleaved_cross_attention(q, *poisoned, *weights, key_padding_mask=mask, with_weights=with_weights)
    assert out.isfinite().all()
    assert out[2].abs().max() == 0
    gradients = torch.autograd.grad(out.sum(), poisoned)
    assert all(g.isfinite().all() and g[~mask].abs().max() == 0 for g in gradients)


def test_bad_masks_are_named() -> None:
    q, k, v = drawn(B, 4, H, D), drawn(B, 5, G, D), drawn(B, 5, G, D)
    with pytest.raises(ValueError, match=r"\(3, 5\) as the memory is, got \(3, 4\)"):
        multihead_cross_attention(q, k, v, key_padding_mask=torch.ones(B, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"must be bool .* got torch\.int64"):
        multihead_cross_attention(q, k, v, key_padding_mask=torch.ones(B, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="k and v must both be"):
        interleaved_cross_attention(q, k, v[:, 1:], *mixing("full"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype) -> None:
    """The error is at most twice that of the plain formula in the same precision."""
    tensors = [t.to(dtype) for t in (drawn(B, 20, H, D), drawn(B, 30, G, D), drawn(B, 30, G, D), *mixing("per_head"))]
    exact = interleaved_cross_attention(*(t.double() for t in tensors))[0]
    plain = interleaved_cross_attention(*tensors, with_weights=True)[0]
    found = interleaved_cross_attention(*tensors)[0]
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max()
