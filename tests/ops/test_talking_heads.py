"""Talking heads against x-transformers, and what the two mixes reduce to."""

import pytest
import torch

from iha.ops.multihead import multihead_attention
from iha.ops.talking_heads import talking_heads_attention


def heads(B: int = 2, N: int = 11, H: int = 4, D: int = 6) -> list[torch.Tensor]:
    return [torch.randn(B, N, H, D, dtype=torch.float64) for _ in range(3)]


@pytest.mark.parametrize("causal", ["virtual", None])
def test_agrees_with_x_transformers(causal: str | None) -> None:
    """Its mix before the softmax is added to the logits, `sim + conv(sim)`: ours is then identity + its weight.

    Its softmax is in float32 whatever the inputs, hence the tolerance.
    """
    attend = pytest.importorskip("x_transformers.attend")
    q, k, v = heads()
    theirs = attend.Attend(heads=4, causal=causal is not None, pre_talking_heads=True, post_talking_heads=True).double()
    with torch.no_grad():
        for conv in (theirs.pre_softmax_talking_heads, theirs.post_softmax_talking_heads):
            conv.weight.copy_(torch.randn_like(conv.weight))
        before, after = (
            conv.weight[:, :, 0, 0].t()  # theirs is [head, source head]
            for conv in (theirs.pre_softmax_talking_heads, theirs.post_softmax_talking_heads)
        )
        wanted, _ = theirs(*(t.transpose(1, 2) for t in (q, k, v)))
    found = talking_heads_attention(q, k, v, torch.eye(4, dtype=torch.float64) + before, after, causal=causal)
    torch.testing.assert_close(found, wanted.transpose(1, 2), atol=5e-6, rtol=0)


def test_identity_mixes_are_multi_head_attention() -> None:
    q, k, v = heads()
    eye = torch.eye(4, dtype=torch.float64)
    found = talking_heads_attention(q, k, v, eye, eye, window=5, rope_theta=1e4)
    torch.testing.assert_close(found, multihead_attention(q, k, v, window=5, rope_theta=1e4), atol=1e-12, rtol=0)


def test_permuting_the_heads_back_and_forth_only_swaps_values() -> None:
    """Logits of head h go to head π(h), weights back: each head keeps its map. A transposed mix would fail."""
    q, k, v = heads()
    permutation = torch.tensor([1, 2, 3, 0])
    mix = torch.eye(4, dtype=torch.float64)[permutation]  # [h, π(h)] = 1
    found = talking_heads_attention(q, k, v, mix, mix.t())
    torch.testing.assert_close(found, multihead_attention(q, k, v), atol=1e-12, rtol=0)
    only_before = talking_heads_attention(q, k, v, mix, torch.eye(4, dtype=torch.float64))
    source = permutation.argsort()  # head g attends with the logits of the head that was sent to it
    torch.testing.assert_close(
        only_before, multihead_attention(q[:, :, source], k[:, :, source], v), atol=1e-12, rtol=0
    )


def test_blocks_do_not_change_the_result() -> None:
    q, k, v = heads(N=23)
    mixes = [torch.randn(4, 4, dtype=torch.float64) for _ in range(2)]
    whole = talking_heads_attention(q, k, v, *mixes, chunk=23)
    for chunk in (1, 7, 100, None):
        torch.testing.assert_close(talking_heads_attention(q, k, v, *mixes, chunk=chunk), whole, atol=1e-13, rtol=0)


def test_bad_mixes_and_blocks_are_named() -> None:
    q, k, v = heads()
    eye = torch.eye(4, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"mix_weights.*\(3, 4\)"):
        talking_heads_attention(q, k, v, eye, eye[:3])
    with pytest.raises(ValueError, match=r"chunk.*0"):
        talking_heads_attention(q, k, v, eye, eye, chunk=0)


def test_sums_over_blocks_are_not_rounded_to_bfloat16() -> None:
    """200 blocks of one query against one block: the gradients of the mixes differ by their last bit at most."""
    q, k, v = (t.bfloat16() for t in heads(N=200))
    grads = []
    for chunk in (1, 200):
        mixes = [torch.eye(4, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
        talking_heads_attention(q, k, v, *mixes, chunk=chunk).float().square().sum().backward()
        grads.append(torch.stack([mix.grad.double() for mix in mixes if mix.grad is not None]))
    torch.testing.assert_close(*grads, atol=0, rtol=2 * torch.finfo(torch.bfloat16).eps)
