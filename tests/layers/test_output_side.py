"""The two options of every layer that act on its output: the gate and the exclusion of the own value."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.cache import KVCache
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.multihead import MultiHeadAttention
from layers.catalogue import LAYERS, E, G, H, build, left_padding

D = E // H
NAMES = [*LAYERS, "iha"]
OPTIONS: list[dict[str, Any]] = [
    {"gate": "headwise"}, {"gate": "elementwise"}, {"exclusive": True}, {"gate": "elementwise", "exclusive": True},
]  # fmt: skip
every_layer = pytest.mark.parametrize("name", NAMES)
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def layer_of(name: str, **options: Any) -> SelfAttention:
    if name != "iha":
        return build(name, **options)
    fields = {"num_kv_heads": G, "rope_theta": 100.0, "dtype": torch.float64, "init": "random", "collapse": "full"}
    return InterleavedHeadAttention(E, H, 3, **(fields | options))  # type: ignore[arg-type]


def heads_of(layer: SelfAttention, x: Tensor, **masks: Tensor) -> Tensor:
    """What enters the output projection, (B, N, H*D)."""
    entered = []
    handle = layer.o_proj.register_forward_pre_hook(lambda _, arguments: entered.append(arguments[0]))
    layer(x, **masks)
    handle.remove()
    return entered[0]


def own_values(name: str, layer: Any, x: Tensor) -> Tensor:
    """The own value of every head by what the layer is, (B, N, H*D): un-mixed, repeated over the heads of a group."""
    v = layer.project(x)[2]
    if name in ("simplicial", "strassen"):  # the pair (i, i)
        v = v[..., :D] * (v[..., D:] + (layer.value_offset if name == "simplicial" else 0))
    if name == "differential":  # heads of two maps have values of width 2D
        v = v.flatten(2).unflatten(2, (G // 2, 2 * D))
    return v.repeat_interleave(H // G, dim=2).flatten(2)


@every_layer
@every_option
def test_the_formulas_follow_attention(name: str, options: dict[str, Any]) -> None:
    """The plain layer's heads, then the published formulas written out, then the output projection."""
    layer, plain = layer_of(name, bias=True, **options), layer_of(name, bias=True)
    plain.load_state_dict({k: t for k, t in layer.state_dict().items() if not k.startswith("g_proj")})
    x, mask = torch.randn(3, 9, E, dtype=torch.float64), left_padding(3, 9)
    y = heads_of(plain, x, key_padding_mask=mask)
    if options.get("exclusive"):
        width = 2 * D if name == "differential" else D
        y, v = y.unflatten(2, (-1, width)), own_values(name, layer, x).unflatten(2, (-1, width))
        y = (y - (y * v).sum(-1, keepdim=True) * v / (v * v).sum(-1, keepdim=True)).flatten(2)
    if options.get("gate"):
        assert layer.g_proj is not None
        gate = 1 / (1 + (-(x @ layer.g_proj.weight.T + layer.g_proj.bias)).exp())
        y = y * (gate.repeat_interleave(D, dim=2) if options["gate"] == "headwise" else gate)
    found, wanted = layer(x, key_padding_mask=mask), plain.o_proj(y)
    torch.testing.assert_close(found[mask], wanted[mask], atol=1e-12, rtol=0)
    assert (found - plain(x, key_padding_mask=mask))[mask].abs().max() > 1e-2


@pytest.mark.parametrize("name", [name for name in NAMES if name != "multi_token"])
@pytest.mark.parametrize("window", [None, 3])
def test_decoding_equals_the_whole_forward(name: str, window: int | None) -> None:
    layer = layer_of(name, window=window, gate="elementwise", exclusive=True).requires_grad_(False)
    x, mask = torch.randn(3, 10, E, dtype=torch.float64), left_padding(3, 10)
    whole, cache = layer(x, key_padding_mask=mask), KVCache()
    for a, b in [(0, 4), *((t, t + 1) for t in range(4, 10))]:
        step = layer(x[:, a:b], key_padding_mask=mask[:, a:b], cache=cache)
        torch.testing.assert_close(step, whole[:, a:b], atol=1e-12, rtol=0)


@every_layer
@every_option
def test_costs_are_those_of_the_module(name: str, options: dict[str, Any]) -> None:
    """The gate is a projection. The exclusion has no parameter, and its products are elementwise: not counted."""
    layer, plain = layer_of(name, bias=True, **options), layer_of(name, bias=True)
    assert layer.num_parameters().total == sum(p.numel() for p in layer.parameters())
    gates = {None: 0, "headwise": H, "elementwise": H * D}[options.get("gate")]
    assert layer.num_parameters().projections - plain.num_parameters().projections == (E + 1) * gates
    assert layer.flops(11).projections - plain.flops(11).projections == 2 * E * gates * 11
    assert layer.flops(11).attention == plain.flops(11).attention


@every_layer
def test_absent_by_default(name: str) -> None:
    assert not [key for key in layer_of(name).state_dict() if key.startswith("g_proj")]
    assert "gate='headwise', exclusive=True" in repr(layer_of(name, gate="headwise", exclusive=True))
    with pytest.raises(ValueError, match=r"gate must be one of .* got 'tanh'"):
        layer_of(name, gate="tanh")


def test_the_first_token_has_nothing_but_itself() -> None:
    """A causal query that sees its own token alone has no output left."""
    layer = MultiHeadAttention(E, H, exclusive=True, dtype=torch.float64)
    out = layer(torch.randn(2, 4, E, dtype=torch.float64))
    assert out[:, 0].abs().max() < 1e-15
    assert out[:, 1:].abs().max() > 1e-3


def test_the_elementwise_gate_is_that_of_qwen3_next() -> None:
    """Another library's layer: Qwen3-Next has gate rows beside the query rows of each head in q_proj, and QK-norm."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    config = Qwen3NextConfig(
        hidden_size=E, num_attention_heads=H, num_key_value_heads=G, head_dim=D, attn_implementation="eager"
    )
    theirs = Qwen3NextAttention(config, layer_idx=0).double()
    ours = MultiHeadAttention(
        E, H, num_kv_heads=G, gate="elementwise", qk_norm_eps=config.rms_norm_eps, dtype=torch.float64
    )
    q_and_gate = theirs.q_proj.weight.unflatten(0, (H, 2, D))
    with torch.no_grad():
        for norm in (theirs.q_norm, theirs.k_norm):
            norm.weight.normal_(std=0.1)
    assert ours.g_proj is not None
    state = {
        "q_proj.weight": q_and_gate[:, 0].flatten(0, 1), "g_proj.weight": q_and_gate[:, 1].flatten(0, 1),
        "k_proj.weight": theirs.k_proj.weight, "v_proj.weight": theirs.v_proj.weight,
        "o_proj.weight": theirs.o_proj.weight, "q_norm.weight": 1 + theirs.q_norm.weight,
        "k_norm.weight": 1 + theirs.k_norm.weight,
    }  # fmt: skip
    ours.load_state_dict(state)
    x = torch.randn(2, 7, E, dtype=torch.float64)
    still = torch.ones(1, 7, D, dtype=torch.float64), torch.zeros(1, 7, D, dtype=torch.float64)  # cos and sin: no RoPE
    mask = torch.full((7, 7), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    # Their norm and softmax run in float32.
    torch.testing.assert_close(ours(x), theirs(x, still, mask)[0], atol=1e-6, rtol=0)
