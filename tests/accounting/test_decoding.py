"""The cost of a decoding step, against torch's own count of the functions that run it and the tensors they read."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import iha
from iha.accounting.decoding import decoding_step
from iha.accounting.gpus import GPUS
from iha.accounting.mechanisms import AttentionShape
from iha.layers.schedule import LayerSpec
from iha.ops.decoding import decode_interleaved, decode_multihead


def counted(shape: AttentionShape, P: int, T: int, multihead: bool = False, P_k: int | None = None) -> int:
    H, G, D = shape.num_heads, shape.G, shape.D
    q, k, v = torch.randn(1, 1, H, D), torch.randn(1, G, T, D), torch.randn(1, G, T, D)
    # As in our caches: the heads of a token are adjacent.
    k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (k, v))
    alphas = [torch.randn(h, h, n) for h, n in ((H, P), (G, P_k or P), (G, P_k or P))]
    collapse = torch.randn(H, P if shape.collapse == "per_head" else H * P)
    with FlopCounterMode(display=False) as counter:
        decode_multihead(q, k, v) if multihead else decode_interleaved(q, k, v, *alphas, collapse)
    return counter.get_total_flops()


@pytest.mark.parametrize("collapse", ["per_head", "full"])
@pytest.mark.parametrize("G", [2, 4])
@pytest.mark.parametrize(("P", "P_k"), [(2, None), (3, None), (1, 3), (3, 2)])
def test_flops_that_grow_with_the_cache_are_those_that_torch_counts(P, P_k, G, collapse):
    shape = AttentionShape(64, 4, G, collapse=collapse, causal="token")
    mine = [decoding_step(shape, LayerSpec("iha", None, P, P_k), T - 1).flops for T in (64, 128)]
    assert mine[1] - mine[0] == counted(shape, P, 128, P_k=P_k) - counted(shape, P, 64, P_k=P_k)
    assert mine[1] == 2 * mine[0]


def test_flops_of_multi_head_attention_are_those_that_torch_counts():
    shape = AttentionShape(64, 4, 2)
    assert decoding_step(shape, LayerSpec(), 63).flops == counted(shape, 1, 64, multihead=True)


@pytest.mark.parametrize("window", [None, 16])
def test_the_cache_is_read_once(window):
    layer = iha.InterleavedHeadAttention(64, 4, 2, window=window)
    cache, step = iha.KVCache(), decoding_step(AttentionShape(64, 4), LayerSpec("iha", window, 2), 40, element_size=4)
    read = []
    decode = layer.decode
    layer.decode = lambda q, cached, call: read.append(cached) or decode(q, cached, call)
    with torch.no_grad():
        layer(torch.randn(1, 40, 64), cache=cache)
        layer(torch.randn(1, 1, 64), cache=cache)
    assert step.cache_bytes == sum(t.numel() * t.element_size() for t in (read[0].k, read[0].v))
    assert step.num_tokens == read[0].num_tokens


def test_where_memory_is_the_limit():
    """The paper's layer waits for memory on both GPUs up to P = 4; with P = 8 arithmetic is the limit."""
    shape = AttentionShape(2560, 20)
    for P, limited_by_memory in ((1, True), (2, True), (4, True), (8, False)):
        step = decoding_step(shape, LayerSpec("iha", None, P), 8192)
        for name in ("h100", "h200"):
            assert (step.intensity < GPUS[name].ridge) is limited_by_memory
            bound = step.traffic / GPUS[name].bandwidth if limited_by_memory else step.flops / GPUS[name].flops
            assert GPUS[name].seconds(step.flops, step.traffic) == bound


def test_mechanisms_without_a_decoding_step_of_their_own_have_no_cost():
    assert decoding_step(AttentionShape(64, 4), LayerSpec("talking_heads"), 64) is None
    assert decoding_step(AttentionShape(64, 4, causal=None), LayerSpec(), 64) is None
