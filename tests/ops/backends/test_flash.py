"""The flash backend without a GPU: what it asks of flash-attn, answered by a stand-in that follows its docs."""

import importlib.util
import sys
import types
from dataclasses import replace

import pytest
import torch

import iha
from iha.ops.backends import dispatch, flash
from iha.ops.backends.case import Case
from iha.ops.visibility import Visibility
from support import Shape, tensors


def documented_attention(q, k, v, softmax_scale, causal, window_size):
    """flash_attn_func as documented: query i (aligned at the end) sees keys i - left … i + right, -1 is no bound."""
    Lq, Lk = q.shape[1], k.shape[1]
    i, j = torch.arange(Lq)[:, None] + Lk - Lq, torch.arange(Lk)[None, :]
    left, right = window_size
    visible = (j <= i) if causal else torch.ones(Lq, Lk, dtype=torch.bool)
    visible &= (left < 0) | (i - j <= left)
    visible &= (right < 0) | (j - i <= right)
    k, v = (t.repeat_interleave(q.shape[2] // t.shape[2], dim=2) for t in (k, v))
    scores = softmax_scale * torch.einsum("bihd,bjhd->bhij", q, k)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~visible, -torch.inf).softmax(-1), v)


def documented_varlen(q, k, v, q_bounds, k_bounds, q_longest, k_longest, **options):
    assert q_bounds.dtype == k_bounds.dtype == torch.int32
    assert q_longest == q_bounds.diff().max() == k_longest
    out = torch.empty_like(q)
    for a, b in zip(q_bounds[:-1].tolist(), q_bounds[1:].tolist(), strict=True):
        out[a:b] = documented_attention(q[None, a:b], k[None, a:b], v[None, a:b], **options)[0]
    return out


@pytest.fixture
def stand_in(monkeypatch):
    """A module flash_attn, and a backend that does not mind where and in which precision it runs."""
    module = types.ModuleType("flash_attn")
    module.flash_attn_func, module.flash_attn_varlen_func = documented_attention, documented_varlen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr(flash, "find_spec", lambda name: object())
    real = flash.obstacle

    def as_on_cuda(case):
        return real(replace(case, head_dim=64, dtype=torch.bfloat16, device=torch.device("cuda")))

    monkeypatch.setattr(dispatch.flash, "obstacle", as_on_cuda)


@pytest.mark.parametrize("causal", ["virtual", None])
@pytest.mark.parametrize("mask", ["none", "left", "right", "documents", "right+documents"])
@pytest.mark.parametrize("window", [None, 4])
def test_what_it_asks_of_flash_attn_is_the_reference(stand_in, window, mask, causal):
    if causal is None and window is not None:
        pytest.skip("a two-sided window is refused, see below")
    inputs = [t.detach() for t in tensors(Shape())]
    index = torch.arange(21)[None]
    options = {
        "key_padding_mask": {
            "left": index >= torch.tensor([[2], [0]]),
            "right": index < torch.tensor([[21], [15]]),
        }.get(mask.split("+")[0]),
        "document_ids": (index // 8).expand(2, 21) if "documents" in mask else None,
    }
    got = iha.interleaved_head_attention(*inputs, causal=causal, window=window, backend="flash", **options)
    want = iha.reference.interleaved_head_attention(*inputs, causal=causal, window=window, **options)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_decoding_with_fewer_queries_than_keys(stand_in):
    inputs = [t.detach() for t in tensors(Shape(Nq=3))]
    got = iha.interleaved_head_attention(*inputs, window=5, backend="flash")
    torch.testing.assert_close(got, iha.reference.interleaved_head_attention(*inputs, window=5), atol=1e-12, rtol=0)


def test_a_hole_is_refused(stand_in):
    real = torch.ones(2, 21, dtype=torch.bool)
    real[0, 7] = False
    with pytest.raises(ValueError, match="contiguous runs"):
        iha.interleaved_head_attention(*tensors(Shape()), key_padding_mask=real, backend="flash")


def test_a_window_counts_further_keys():
    assert flash.window_size(Visibility("virtual", 4, 3)) == (11, 0)
    assert flash.window_size(Visibility(None, 4, 1)) == (3, 3)
    assert flash.window_size(Visibility("virtual", None, 3)) == (-1, -1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"visibility": Visibility("token", None, 2)}, "causal='token'"),
        ({"visibility": Visibility(None, 5, 2)}, "two-sided window of 5"),
        ({"dtype": torch.float32}, "float32"),
        ({"head_dim": 260}, "260"),
        ({"head_dim": 12}, "12"),
        ({"device": torch.device("cpu")}, "'cpu'"),
        ({"per_sequence": True, "num_queries": 3}, "3 query tokens for 9 keys"),
    ],
)
def test_each_obstacle_says_why(monkeypatch, change, reason):
    monkeypatch.setattr(flash, "find_spec", lambda name: object())
    possible = Case(Visibility("virtual", 5, 2), 9, 9, 64, False, False, torch.bfloat16, torch.device("cuda"))
    assert flash.obstacle(possible) is None
    assert reason in flash.obstacle(replace(possible, **change))


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="flash-attn is installed here")
def test_a_missing_package_is_named():
    with pytest.raises(ValueError, match=r"iha\[gpu\]"):
        iha.interleaved_head_attention(*tensors(Shape()), backend="flash")
