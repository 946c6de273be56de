"""The decoding step against the reference: the last row of the whole computation."""

import pytest
import torch

from iha.ops import reference
from iha.ops.decoding import (
    additive_mask,
    decode_interleaved,
    decode_multihead,
    visible_to_newest,
)
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.masking import Masking
from iha.ops.rotary import full_table, rotary_table, rotate_by
from iha.ops.visibility import Visibility

THETA = 100.0


def _tensors(B: int, N: int, H: int, G: int, P: int, D: int, full: bool) -> list[torch.Tensor]:
    shapes = [(B, N, H, D), (B, N, G, D), (B, N, G, D), (H, H, P), (G, G, P), (G, G, P), (H, H * P if full else P)]
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def _prerotated(x: torch.Tensor, P: int) -> torch.Tensor:
    return rotate_by(x, *rotary_table(torch.arange(x.shape[1]) * P, x.shape[-1], THETA, x.dtype))


@pytest.mark.parametrize("causal", ["virtual", "token"])
@pytest.mark.parametrize("rope_positions", ["virtual", "token", None])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(("G", "full"), [(4, False), (2, True)])
def test_last_row_of_the_reference(
    causal: str, rope_positions: str | None, window: int | None, G: int, full: bool
) -> None:
    P, N, D = 3, 7, 6
    q, k, v, *mixing = _tensors(2, N, 4, G, P, D, full)
    padding = torch.ones(2, N, dtype=torch.bool)
    padding[1, :3] = False
    rule = Visibility(causal, window, P)
    expected = reference.interleaved_head_attention(
        q, k, v, *mixing, causal=causal, window=window, key_padding_mask=padding,
        rope_theta=None if rope_positions is None else THETA, rope_positions=rope_positions or "token",
    )[:, -1:]  # fmt: skip
    rotary = None
    if rope_positions == "virtual":  # the step itself rotates query p by p - p' for each key p'
        q, k = _prerotated(q, P), _prerotated(k, P)
        between = (torch.arange(P)[:, None] - torch.arange(P))[:, :, None]
        rotary = full_table(*rotary_table(between, D, THETA, q.dtype))
    elif rope_positions == "token":
        q, k = _prerotated(q, 1), _prerotated(k, 1)
    first = 0 if window is None else N - 1 - rule.reach_back
    visible = visible_to_newest(Masking(rule, padding[:, first:]), N - 1, first, N - first, q.device)
    bias = additive_mask(visible, 4, q.dtype)
    k, v = (t[:, first:].transpose(1, 2) for t in (k, v))  # token after token in memory
    for layout in (lambda t: t, lambda t: t.contiguous()):  # and head after head
        out = decode_interleaved(q[:, -1:], layout(k), layout(v), *mixing, bias=bias, rotary=rotary)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_tokens_yet_to_come_are_not_seen() -> None:
    """A static cache is longer than what it holds: whatever stands beyond the newest token must not matter."""
    P, N, D = 2, 5, 4
    q, k, v, *mixing = _tensors(1, N, 4, 4, P, D, False)
    expected = reference.interleaved_head_attention(q, k, v, *mixing, causal="virtual")[:, -1:]
    k, v = (torch.cat((t, torch.full((1, 3, 4, D), 9e9, dtype=t.dtype)), dim=1) for t in (k, v))
    visible = visible_to_newest(
        Masking.of("virtual", None, num_pseudo_heads=P), torch.tensor(N - 1), 0, N + 3, q.device
    )
    bias = additive_mask(visible, 4, q.dtype)
    out = decode_interleaved(q[:, -1:], k.transpose(1, 2), v.transpose(1, 2), *mixing, bias=bias)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [None, 3])
def test_pseudo_rotary_is_virtual_rope(window: int | None) -> None:
    """q and k turned to n*P beforehand and pseudo-heads turned on by p: the same as RoPE at virtual positions."""
    P, D = 3, 6
    q, k, v, *mixing = _tensors(2, 9, 4, 2, P, D, False)
    expected = reference.interleaved_head_attention(q, k, v, *mixing, window=window, rope_theta=THETA)
    out = interleaved_head_attention(
        _prerotated(q, P), _prerotated(k, P), v, *mixing,
        window=window, pseudo_rotary=rotary_table(torch.arange(P), D, THETA, q.dtype),
    )  # fmt: skip
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("G", [4, 2, 1])
def test_multihead_is_the_last_row(window: int | None, G: int) -> None:
    q, k, v, *_ = _tensors(2, 7, 4, G, 1, 6, False)
    padding = torch.ones(2, 7, dtype=torch.bool)
    padding[1, :4] = False
    ones = [torch.eye(heads, dtype=q.dtype)[:, :, None] for heads in (4, G, G)]
    expected = reference.interleaved_head_attention(
        q, k, v, *ones, torch.ones(4, 1, dtype=q.dtype), window=window, key_padding_mask=padding
    )[:, -1:]
    visible = visible_to_newest(Masking.of("virtual", window, padding), 6, 0, 7, q.device)
    out = decode_multihead(q[:, -1:], k.transpose(1, 2), v.transpose(1, 2), additive_mask(visible, 4, q.dtype))
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_the_newest_token_sees_its_own_document_only() -> None:
    P, N, D = 2, 6, 4
    q, k, v, *mixing = _tensors(2, N, 4, 2, P, D, False)
    documents = torch.tensor([[0, 0, 1, 1, 1, 1], [3, 3, 3, 3, 3, 2]])
    expected = reference.interleaved_head_attention(q, k, v, *mixing, document_ids=documents)[:, -1:]
    for newest in (N - 1, torch.tensor(N - 1)):
        masking = Masking.of("virtual", None, None, documents, num_pseudo_heads=P)
        bias = additive_mask(visible_to_newest(masking, newest, 0, N, q.device), 4, q.dtype)
        out = decode_interleaved(q[:, -1:], k.transpose(1, 2), v.transpose(1, 2), *mixing, bias=bias)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
