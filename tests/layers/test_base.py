"""What every mechanism's layer shares: masked, decoded, trained and refused alike. Definitions: each layer's file."""

from typing import Any

import pytest
import torch

from iha.layers.base import SelfAttention
from iha.layers.cache import KVCache
from iha.layers.multihead import MultiHeadAttention
from layers.catalogue import LAYERS, E, G, H, build, left_padding

CACHED = [name for name in LAYERS if name != "multi_token"]
every_layer = pytest.mark.parametrize("name", LAYERS)


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("prefix", [0, 1, 5, 9])
def test_decoding_equals_the_whole_forward(name: str, window: int | None, prefix: int) -> None:
    """A prefix at once, then token by token, with ragged left padding and documents."""
    B, N = 3, 10
    layer = build(name, window=window).requires_grad_(False)
    x = torch.randn(B, N, E, dtype=torch.float64)
    padding, documents = left_padding(B, N), (torch.arange(N) // 6).expand(B, N)
    whole = layer(x, key_padding_mask=padding, document_ids=documents)
    cache, steps = KVCache(), [(0, prefix)] * (prefix > 0) + [(t, t + 1) for t in range(prefix, N)]
    for a, b in steps:
        step = layer(x[:, a:b], key_padding_mask=padding[:, a:b], document_ids=documents[:, a:b], cache=cache)
        torch.testing.assert_close(step, whole[:, a:b], atol=1e-12, rtol=0)
    assert cache.num_tokens_seen == N
    # A pair's second row sees the first rows of one more token: its window slides by rows.
    assert cache.num_tokens_kept == (N if window is None else window if name == "paired_heads" else window - 1)


@pytest.mark.parametrize("name", CACHED)
def test_left_padded_decoding_equals_unpadded(name: str) -> None:
    N, pad = 8, 3
    layer = build(name).requires_grad_(False)
    x = torch.randn(1, N, E, dtype=torch.float64)
    alone = layer(x)
    padded = torch.cat((torch.full((1, pad, E), torch.nan, dtype=torch.float64), x), dim=1)
    mask = torch.arange(N + pad)[None] >= pad
    cache, out = KVCache(), []
    for a, b in [(0, 5), *((t, t + 1) for t in range(5, N + pad))]:
        out.append(layer(padded[:, a:b], key_padding_mask=mask[:, a:b], cache=cache))
    torch.testing.assert_close(torch.cat(out, dim=1)[:, pad:], alone, atol=1e-12, rtol=0)


@every_layer
def test_padding_poisons_nothing(name: str) -> None:
    layer = build(name, bias=True)
    x = torch.randn(2, 7, E, dtype=torch.float64)
    mask = left_padding(2, 7)
    poisoned = x.masked_fill(~mask[:, :, None], torch.nan).requires_grad_()
    out = layer(poisoned, key_padding_mask=mask)
    torch.testing.assert_close(out, layer(x, key_padding_mask=mask), atol=0, rtol=0)
    out[mask].square().sum().backward()
    assert poisoned.grad is not None
    assert poisoned.grad.isfinite().all()
    assert poisoned.grad[~mask].abs().max() == 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@every_layer
def test_own_parameters_are_counted_by_formula(name: str) -> None:
    layer = build(name)
    own = sum(p.numel() for p in layer.parameters(recurse=False))
    assert layer.num_mixing_parameters() == own


@every_layer
def test_runs_under_autocast_and_trains(name: str) -> None:
    layer = LAYERS[name](num_kv_heads=G)
    target = torch.randn(4, 8, E)
    x = torch.randn(4, 8, E)
    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = layer(x)
        assert out.dtype == torch.bfloat16
        loss = (out.float() - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@every_layer
def test_qk_norm(name: str) -> None:
    """Each head's query and key, of either set, has length √D before RoPE, whatever the projections."""
    layer = build(name, qk_norm_eps=1e-12)
    project = SelfAttention.project if name == "knocking_linear" else type(layer).project  # before it is knocked
    q, k, _ = project(layer, torch.randn(2, 5, E, dtype=torch.float64))
    for t in (q, k.unflatten(-1, (-1, 4))):
        torch.testing.assert_close(t.norm(dim=-1), torch.full_like(t[..., 0], 2.0), atol=1e-6, rtol=0)


@every_layer
def test_repr_says_what_it_is(name: str) -> None:
    assert "embed_dim=16, num_heads=4, num_kv_heads=2, causal='virtual'" in repr(build(name))


@every_layer
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"num_kv_heads": 3}, "3"),
        ({"window": 0}, "0"),
        ({"window": -2}, "-2"),
        ({"causal": "soon"}, "soon"),
        ({"head_dim": 0}, "head_dim"),
    ],
)
def test_bad_arguments_are_named(name: str, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        LAYERS[name](**wrong)


def test_what_cannot_be_together_is_named() -> None:
    with pytest.raises(ValueError, match="4 heads, 10 wide"):
        MultiHeadAttention(10, 4)
    with pytest.raises(ValueError, match="even, got 3"):
        MultiHeadAttention(12, 4, rope_theta=1e4)
    with pytest.raises(ValueError, match="causal=None"):
        MultiHeadAttention(E, H, causal=None)(torch.randn(1, 3, E), cache=KVCache())
