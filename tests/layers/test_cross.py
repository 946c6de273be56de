"""Cross-attention layers: against torch's layer and the operator, decoding, costs, refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.accounting import flop_counter
from iha.layers.cross import CROSS_MECHANISMS, CrossAttention, InterleavedCrossAttention, MultiHeadCrossAttention
from iha.ops.cross import interleaved_cross_attention

E, H, G, P = 16, 4, 2, 3
every_mechanism = pytest.mark.parametrize("name", CROSS_MECHANISMS)


def built(name: str, **options: Any) -> CrossAttention:
    torch.manual_seed(0)
    own = {"num_pseudo_heads": P, "init": "random"} if name == "iha" else {}
    return CROSS_MECHANISMS[name](E, H, **({"num_kv_heads": G, "dtype": torch.float64} | own | options))


def drawn(B: int, N: int) -> Tensor:
    return torch.randn(B, N, E, dtype=torch.float64)


def padding(N: int) -> Tensor:
    return torch.arange(N)[None] < torch.tensor([[N], [N - 3]])


def test_multihead_is_torchs_layer() -> None:
    ours = MultiHeadCrossAttention(E, H, bias=True, dtype=torch.float64)
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([proj.weight for proj in projections]))
        theirs.in_proj_bias.copy_(torch.cat([proj.bias for proj in projections]))
    theirs.out_proj.load_state_dict(ours.o_proj.state_dict())
    x, states, mask = drawn(2, 9), drawn(2, 6), padding(6)
    wanted = theirs(x, states, states, key_padding_mask=~mask)[0]
    torch.testing.assert_close(ours(x, ours.remember(states, mask)), wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("gate", [None, "headwise", "elementwise"])
def test_interleaved_is_its_operator_between_its_projections(gate: str | None) -> None:
    layer = built("iha", bias=True, collapse="full", gate=gate)
    assert isinstance(layer, InterleavedCrossAttention)
    x, states, mask = drawn(2, 9), drawn(2, 6), padding(6)
    q, k, v = (
        proj(t).unflatten(-1, (-1, 4))
        for proj, t in ((layer.q_proj, x), (layer.k_proj, states), (layer.v_proj, states))
    )
    heads = interleaved_cross_attention(q, k, v, *layer.mixing, key_padding_mask=mask)[0]
    if layer.g_proj is not None:
        heads = heads * layer.g_proj(x).unflatten(-1, (H, -1)).sigmoid()
    wanted = layer.o_proj(heads.flatten(2))
    torch.testing.assert_close(layer(x, layer.remember(states, mask)), wanted, atol=1e-12, rtol=0)


@every_mechanism
@pytest.mark.parametrize("collapse", ["per_head", "full"])
@pytest.mark.parametrize("padded", [False, True])
def test_one_query_at_a_time_reads_the_memory_unmixed(name: str, collapse: str, padded: bool) -> None:
    """The memory is computed once. Each token's output is that of all tokens at once."""
    own = {"collapse": collapse} if name == "iha" else {}
    layer = built(name, bias=True, qk_norm_eps=1e-6, gate="headwise", **own).requires_grad_(False)
    x, states, mask = drawn(2, 5), drawn(2, 7), padding(7) if padded else None
    memory = layer.remember(states, mask)
    whole = layer(x, memory)
    assert memory.k.shape == memory.v.shape == (2, G, 7, 4)
    for t in range(5):
        torch.testing.assert_close(layer(x[:, t : t + 1], memory), whole[:, t : t + 1], atol=1e-12, rtol=0)


@every_mechanism
def test_padding_poisons_nothing(name: str) -> None:
    layer, x, states, mask = built(name, bias=True), drawn(2, 5), drawn(2, 7), padding(7)
    poisoned = states.masked_fill(~mask[:, :, None], torch.nan).requires_grad_()
    for queries in (x, x[:, :1]):
        out = layer(queries, layer.remember(poisoned, mask))
        torch.testing.assert_close(out, layer(queries, layer.remember(states, mask)), atol=0, rtol=0)
        (gradient,) = torch.autograd.grad(out.sum(), poisoned)
        assert gradient.isfinite().all()
        assert gradient[~mask].abs().max() == 0
    empty = layer(x, layer.remember(states, torch.zeros(2, 7, dtype=torch.bool)))
    torch.testing.assert_close(empty, layer.o_proj.bias.expand_as(empty), atol=1e-15, rtol=0)
    one = layer(x[:, :1], layer.remember(states, torch.zeros(2, 7, dtype=torch.bool)))
    torch.testing.assert_close(one, empty[:, :1], atol=1e-15, rtol=0)


@every_mechanism
def test_costs_are_those_that_torch_counts(name: str) -> None:
    layer = built(name, dtype=torch.float32, gate="elementwise", **({"collapse": "full"} if name == "iha" else {}))
    assert layer.num_parameters().total == sum(p.numel() for p in layer.parameters())
    x, states, counter = torch.randn(1, 9, E), torch.randn(1, 7, E), flop_counter()
    with counter, torch.no_grad():
        layer(x, layer.remember(states))
    assert counter.get_total_flops() == layer.flops(9, num_keys=7).total
    memory = layer.remember(states)
    assert layer.cache_bytes(7, element_size=4) == 4 * (memory.k.numel() + memory.v.numel())


@every_mechanism
def test_what_cross_attention_has_not_is_refused(name: str) -> None:
    layer = built(name)
    for wrong in ("window", "rope_theta", "exclusive", "causal"):
        with pytest.raises(ValueError, match=wrong):
            built(name, **{wrong: 3})
    with pytest.raises(ValueError, match=r"got shape \(2, 3, 5\)"):
        layer.remember(torch.randn(2, 3, 5))
    with pytest.raises(ValueError, match=r"B=2 as in the memory"):
        layer(drawn(3, 4), layer.remember(drawn(2, 4)))
    with pytest.raises(ValueError, match="exactly only, not by 'paper'"):
        layer.flops(4, "paper")
