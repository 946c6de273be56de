"""The layers of all mechanisms: one interface, trained, masked and decoded alike."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.cache import KVCache
from iha.layers.differential import DifferentialAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.multi_token import MultiTokenAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.simplicial import SimplicialAttention
from iha.layers.strassen import StrassenAttention
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.ops import reference
from iha.ops.differential import differential_attention_reference, lambda_from
from iha.ops.multi_token import group_norm, multi_token_attention_reference
from iha.ops.simplicial import simplicial_attention_reference
from iha.ops.strassen import strassen_attention_reference
from iha.ops.talking_heads import talking_heads_attention_reference

E, H, G = 16, 4, 2  # D = 4
Build = Callable[..., SelfAttention]

LAYERS: dict[str, Build] = {
    "multihead": lambda **o: MultiHeadAttention(E, H, **o),
    "talking_heads": lambda **o: TalkingHeadsAttention(E, H, init="random", chunk=3, **o),
    "differential": lambda **o: DifferentialAttention(E, H, depth=3, **o),
    "simplicial": lambda **o: SimplicialAttention(E, H, key_offset=0.25, value_offset=1.0, **o),
    "strassen": lambda **o: StrassenAttention(E, H, chunk=3, **o),
    "knocking_linear": lambda **o: KnockingHeadsAttention(E, H, kind="linear", **o),
    "knocking_mlp": lambda **o: KnockingHeadsAttention(E, H, kind="mlp", **o),
    "multi_token": lambda **o: MultiTokenAttention(E, H, query_kernel=3, key_kernel=4, depth=2, chunk=3, **o),
}
CACHED = [name for name in LAYERS if name != "multi_token"]
every_layer = pytest.mark.parametrize("name", LAYERS)


def build(name: str, **options: Any) -> SelfAttention:
    """A float64 layer whose own parameters are not at their tame initial values."""
    if name != "simplicial":
        options.setdefault("rope_theta", 100.0)
    layer = LAYERS[name](**({"num_kv_heads": G, "dtype": torch.float64} | options))
    with torch.no_grad():
        for own, parameter in layer.named_parameters(recurse=False):
            parameter.add_(0.3 * torch.randn_like(parameter) if not own.startswith("lambda") else 0)
    return layer


def multihead_reference(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    eyes = [torch.eye(t.shape[2], dtype=q.dtype)[:, :, None] for t in (q, k, v)]
    return reference.interleaved_head_attention(q, k, v, *eyes, torch.ones(H, 1, dtype=q.dtype), **options)


def by_definition(layer: Any, x: Tensor, **masks: Tensor) -> Tensor:
    """The layer from its projections and the definition of its operator."""
    q = layer.q_proj(x).unflatten(-1, (H, -1))
    k, v = (proj(x).unflatten(-1, (G, -1)) for proj in (layer.k_proj, layer.v_proj))
    options: dict[str, Any] = {"causal": layer.causal, "window": layer.window, "rope_theta": layer.rope_theta, **masks}
    match layer:
        case TalkingHeadsAttention():
            out = talking_heads_attention_reference(q, k, v, layer.mix_logits, layer.mix_weights, **options)
        case DifferentialAttention():
            number = lambda_from(layer.lambda_q1, layer.lambda_k1, layer.lambda_q2, layer.lambda_k2, layer.lambda_init)
            v = v.flatten(2).unflatten(2, (G // 2, -1))
            out = differential_attention_reference(
                q, k, v, number, layer.norm_weight, lambda_init=layer.lambda_init, **options
            )
        case SimplicialAttention():
            (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)
            options |= {"window": layer.windows}
            del options["rope_theta"]
            out = simplicial_attention_reference(q, k1, k2 + 0.25, v1, v2 + 1, **options)
        case StrassenAttention():
            (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)
            out = strassen_attention_reference(q, k1, k2, v1, v2, **options)
        case MultiTokenAttention():
            out = multi_token_attention_reference(q, k, v, layer.key_query_kernel, layer.head_kernel, **options)
            out = group_norm(out, layer.norm_weight, layer.lambda_init)
        case KnockingHeadsAttention(kind="linear"):
            out = multihead_reference(q @ layer.knock_q, k @ layer.knock_k, v @ layer.knock_v, **options)
        case KnockingHeadsAttention():
            v = 2 * (v @ layer.knock_up * (v @ layer.knock_gate).sigmoid()) @ layer.knock_down
            out = multihead_reference(q, k, v, **options)
        case _:
            out = multihead_reference(q, k, v, **options)
    return layer.o_proj(out.flatten(2))


def left_padding(B: int, N: int) -> Tensor:
    return torch.arange(N)[None] >= torch.arange(B)[:, None] * 2


@every_layer
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("causal", "window"), [("virtual", None), ("token", 4), (None, None), (None, 3)])
def test_equals_its_definition_with_all_gradients(name: str, causal: Any, window: int | None, masked: bool) -> None:
    B, N = 3, 9
    layer = build(name, causal=causal, window=window)
    x = torch.randn(B, N, E, dtype=torch.float64, requires_grad=True)
    masks = {}
    if masked:
        masks = {"key_padding_mask": left_padding(B, N), "document_ids": (torch.arange(N) // 4).expand(B, N)}
    found, wanted = layer(x, **masks), by_definition(layer, x, **masks)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    tensors, direction = [x, *layer.parameters()], torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, tensors, direction), torch.autograd.grad(wanted, tensors, direction), strict=True
    ):
        assert one.isfinite().all()
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


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
    assert cache.num_tokens_kept == (N if window is None else window - 1)


@pytest.mark.parametrize("window", [(2, 4), (4, 2), (None, 2)])
def test_decoding_with_two_windows_keeps_the_longer(window: tuple[int | None, int]) -> None:
    layer = build("simplicial", window=window).requires_grad_(False)
    x, cache = torch.randn(2, 7, E, dtype=torch.float64), KVCache()
    steps = [layer(x[:, t : t + 1], cache=cache) for t in range(7)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x), atol=1e-12, rtol=0)
    assert cache.num_tokens_kept == (7 if None in window else 3)


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


@pytest.mark.parametrize(
    "other",
    [
        lambda **o: TalkingHeadsAttention(E, H, **o),
        lambda **o: KnockingHeadsAttention(E, H, kind="mlp", **o),
        lambda **o: KnockingHeadsAttention(E, H, kind="linear", **o),
        lambda **o: MultiTokenAttention(E, H, depth=None, **o),
    ],
    ids=["talking_heads", "knocking_mlp", "knocking_linear", "multi_token"],
)
def test_starts_as_multi_head_attention(other: Build) -> None:
    options: dict[str, Any] = {"num_kv_heads": G, "rope_theta": 1e4, "window": 5, "dtype": torch.float64}
    plain, layer = MultiHeadAttention(E, H, **options), other(**options)
    assert not layer.load_state_dict(plain.state_dict(), strict=False).unexpected_keys
    x = torch.randn(2, 9, E, dtype=torch.float64)
    torch.testing.assert_close(layer(x), plain(x), atol=1e-12, rtol=0)


def test_linear_knocking_can_be_multiplied_into_the_projections() -> None:
    layer = build("knocking_linear")
    assert isinstance(layer, KnockingHeadsAttention)
    plain = MultiHeadAttention(E, H, num_kv_heads=G, rope_theta=100.0, dtype=torch.float64)
    plain.load_state_dict({n: p for n, p in layer.state_dict().items() if "proj" in n})
    with torch.no_grad():
        for proj, T in ((plain.q_proj, layer.knock_q), (plain.k_proj, layer.knock_k), (plain.v_proj, layer.knock_v)):
            proj.weight.copy_((T.t() @ proj.weight.unflatten(0, (-1, 4))).flatten(0, 1))
    x = torch.randn(2, 6, E, dtype=torch.float64)
    torch.testing.assert_close(plain(x), layer(x), atol=1e-12, rtol=0)


def test_multi_head_agrees_with_torch() -> None:
    theirs = nn.MultiheadAttention(E, H, bias=False, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(E, H, dtype=torch.float64)
    q, k, v = theirs.in_proj_weight.detach().chunk(3)
    ours.load_state_dict(
        {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": theirs.out_proj.weight.detach()}
    )
    x, future = torch.randn(2, 7, E, dtype=torch.float64), torch.ones(7, 7, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x), theirs(x, x, x, attn_mask=future, need_weights=False)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_shared_key_value_heads_agree_with_sdpa(num_kv_heads: int) -> None:
    layer = MultiHeadAttention(E, H, num_kv_heads=num_kv_heads, dtype=torch.float64)
    x = torch.randn(2, 7, E, dtype=torch.float64)
    q, k, v = (t.transpose(1, 2) for t in layer.project(x))
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(layer(x), layer.o_proj(out.flatten(2)), atol=1e-12, rtol=0)


@every_layer
def test_own_parameters_are_counted_by_formula(name: str) -> None:
    layer = build(name)
    own = sum(p.numel() for p in layer.parameters(recurse=False))
    assert layer.num_mixing_parameters() == own  # type: ignore[operator]


def test_differential_is_as_large_as_multi_head() -> None:
    plain, layer = build("multihead"), build("differential")
    own = layer.num_mixing_parameters()  # type: ignore[operator]
    assert sum(p.numel() for p in layer.parameters()) - own == sum(p.numel() for p in plain.parameters())
    caches = KVCache(), KVCache()
    x = torch.randn(1, 5, E, dtype=torch.float64)
    plain(x, cache=caches[0]), layer(x, cache=caches[1])
    assert caches[0].num_bytes == caches[1].num_bytes


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


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: MultiHeadAttention(10, 4), "10"),
        (lambda: MultiHeadAttention(16, 4, backend="fastest"), "fastest"),
        (lambda: MultiHeadAttention(12, 4, rope_theta=1e4), "3"),
        (lambda: TalkingHeadsAttention(16, 4, init="dirac"), "dirac"),
        (lambda: TalkingHeadsAttention(16, 4, chunk=0), "chunk"),
        (lambda: DifferentialAttention(15, 3), "num_heads=3"),
        (lambda: DifferentialAttention(16, 4, num_kv_heads=1), "num_kv_heads=1"),
        (lambda: DifferentialAttention(16, 4, depth=-1), "-1"),
        (lambda: SimplicialAttention(16, 4, window=(4, 0)), r"\(4, 0\)"),
        (lambda: SimplicialAttention(16, 4, rope_theta=1e4), "10000"),
        (lambda: KnockingHeadsAttention(16, 4, kind="gate"), "gate"),
        (lambda: MultiTokenAttention(16, 4, head_kernel=3), "3"),
        (lambda: MultiTokenAttention(16, 4, query_kernel=0), "query_kernel"),
        (lambda: StrassenAttention(16, 4, chunk=-1), "-1"),
    ],
)
def test_impossible_combinations_are_named(make: Callable[[], nn.Module], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make()


def test_no_cache_where_there_can_be_none() -> None:
    x = torch.randn(1, 3, E)
    with pytest.raises(ValueError, match="cache"):
        MultiTokenAttention(E, H)(x, cache=KVCache())
    with pytest.raises(ValueError, match="causal"):
        MultiHeadAttention(E, H, causal=None)(x, cache=KVCache())
