"""The layer: decoding with the un-mixed cache equals the full forward, and everything it says about itself is true."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import iha
from iha.layers.initialisation import INITIALISATIONS

pytestmark = pytest.mark.usefixtures("poisoned_memory")


def layer(**options) -> iha.InterleavedHeadAttention:
    shape = {"embed_dim": 16, "num_heads": 4, "num_pseudo_heads": 3, "num_kv_heads": 2, "init": "random"}
    return iha.InterleavedHeadAttention(**{**shape, "dtype": torch.float64, **options})


def chunked(attention, x, chunks, **masks) -> tuple[torch.Tensor, iha.KVCache]:
    """The same tokens, a chunk at a time."""
    cache, outputs, start = iha.KVCache(), [], 0
    for size in chunks:
        part = {name: mask[:, start : start + size] for name, mask in masks.items()}
        outputs.append(attention(x[:, start : start + size], cache=cache, **part))
        start += size
    return torch.cat(outputs, dim=1), cache


@settings(max_examples=120)
@given(
    st.fixed_dictionaries(
        {
            "causal": st.sampled_from(["virtual", "token"]),
            "window": st.none() | st.integers(1, 12),
            "rope_theta": st.sampled_from([None, 100.0]),
            "rope_positions": st.sampled_from(["virtual", "token"]),
            "collapse": st.sampled_from(["per_head", "full"]),
            "num_kv_heads": st.sampled_from([1, 2, 4]),
            "num_pseudo_heads": st.integers(1, 4),
            "bias": st.booleans(),
        }
    ),
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.sampled_from(["none", "left", "documents", "left+documents"]),
)
def test_decoding_in_chunks_of_any_size_equals_the_full_forward(options, chunks, mask):
    attention, N = layer(**options), sum(chunks)
    x = torch.randn(2, N, 16, dtype=torch.float64)
    masks = {}
    if "left" in mask:
        masks["key_padding_mask"] = torch.arange(N)[None] >= torch.tensor([[0], [min(4, N - 1)]])
    if "documents" in mask:
        masks["document_ids"] = (torch.arange(N) // 5).expand(2, N)
    got, cache = chunked(attention, x, chunks, **masks)
    torch.testing.assert_close(got, attention(x, **masks), atol=1e-12, rtol=0)
    assert cache.num_tokens_seen == N


@settings(max_examples=60)
@given(
    st.sampled_from([(1, 3), (3, 1), (2, 4), (3, 3)]),
    st.sampled_from([(4, 4, None), (4, 2, 2), (4, 2, 6), (4, 4, 8)]),
    st.fixed_dictionaries({"window": st.none() | st.integers(1, 9), "rope_theta": st.sampled_from([None, 100.0])}),
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.booleans(),
)
def test_decoding_with_other_numbers_of_pseudo_keys_and_heads(numbers, heads, options, chunks, padded):
    (P, P_k), (H, G, mixed), N = numbers, heads, sum(chunks)
    attention = layer(
        num_heads=H, num_kv_heads=G, num_pseudo_heads=P, num_pseudo_keys=P_k, num_mixed_heads=mixed,
        collapse="full" if mixed else "per_head", causal="token", rope_positions="token", **options,
    )  # fmt: skip
    x = torch.randn(2, N, 16, dtype=torch.float64)
    real = torch.arange(N)[None] >= torch.tensor([[0], [min(4, N - 1)]])
    masks = {"key_padding_mask": real} if padded else {}
    got, cache = chunked(attention, x, chunks, **masks)
    torch.testing.assert_close(got, attention(x, **masks), atol=1e-12, rtol=0)
    assert cache.num_bytes == 2 * (2 * cache.num_tokens_kept * G * 4) * 8  # un-mixed, whatever the numbers
    q, k, v = attention.project(x)
    want = iha.reference.interleaved_head_attention(
        q, k, v, *attention.mixing, causal="token", rope_positions="token", **options, **masks
    )
    torch.testing.assert_close(attention(x, **masks), attention.o_proj(want.flatten(2)), atol=1e-12, rtol=0)


def test_other_numbers_are_said_and_counted():
    attention = layer(
        num_pseudo_heads=1,
        num_pseudo_keys=3,
        num_mixed_heads=2,
        causal="token",
        collapse="full",
        rope_positions="token",
    )
    assert "num_pseudo_heads=1, num_pseudo_keys=3, num_mixed_heads=2" in repr(attention)
    own = sum(p.numel() for p in attention.parameters(recurse=False))
    assert attention.num_mixing_parameters() == own == 4 * 2 * 1 + 2 * (2 * 1 * 3) + 4 * 2 * 1
    assert layer(num_pseudo_keys=3).visibility == layer().visibility


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"num_pseudo_keys": 2}, "causal='virtual' .* got 3 and 2"),
        ({"num_pseudo_keys": 2, "causal": "token", "rope_theta": 1e4}, "rope_positions='virtual' .* got 3 and 2"),
        ({"num_pseudo_keys": 0}, "num_pseudo_keys must be at least 1, got 0"),
        ({"num_mixed_heads": 3, "collapse": "full"}, "2 k/v heads .* 4 heads, got 3"),
        ({"num_mixed_heads": 2}, "collapse='full', got 'per_head'"),
        ({"num_mixed_heads": 2, "collapse": "full", "init": "one_hot"}, "init='one_hot' .* 4 heads are mixed into 2"),
        ({"init": "paired_heads", "collapse": "full"}, "4 heads and 2 k/v heads, mixed into 4 and 2"),
    ],
)
def test_numbers_that_do_not_fit_are_named(wrong, named):
    with pytest.raises(ValueError, match=named):
        layer(**wrong)


def test_padding_on_the_left_changes_nothing_but_the_place():
    attention = layer(rope_theta=100.0)
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    padded = torch.cat((torch.full((1, 4, 16), torch.nan, dtype=torch.float64), x), dim=1)
    got = attention(padded, key_padding_mask=torch.arange(13)[None] >= 4)
    torch.testing.assert_close(got[:, 4:], attention(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("causal", "kept"), [("virtual", 5), ("token", 4)])
def test_a_window_layer_keeps_only_what_it_can_still_see(causal, kept):
    """Under virtual causality (n, p) still sees the later pseudo-heads of token n - W."""
    _, cache = chunked(layer(causal=causal, window=5), torch.randn(2, 20, 16, dtype=torch.float64), [7, 13])
    assert cache.num_tokens_kept == kept
    assert cache.num_tokens_seen == 20
    assert cache.num_bytes == 2 * (2 * kept * 2 * 4) * 8  # k and v: B x kept x G x D doubles


def test_the_cache_does_not_grow_with_pseudo_heads():
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    sizes = {P: chunked(layer(num_pseudo_heads=P), x, [20])[1].num_bytes for P in (1, 2, 8)}
    assert sizes[1] == sizes[2] == sizes[8] == 2 * (2 * 20 * 2 * 4) * 8


def test_beams_reorder():
    attention, x = layer(), torch.randn(3, 6, 16, dtype=torch.float64)
    order = torch.tensor([2, 0, 0])
    cache = iha.KVCache()
    attention(x[:, :5], cache=cache)
    cache.reorder(order)
    got = attention(x[order, 5:], cache=cache)
    torch.testing.assert_close(got, attention(x[order])[:, 5:], atol=1e-12, rtol=0)


def test_poisoned_padding_reaches_no_output_and_no_gradient():
    attention = layer(bias=True)
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    real = torch.rand(2, 9) > 0.3
    results = []
    for filled in (x, x.masked_fill(~real[:, :, None], torch.nan)):
        attention.zero_grad()
        attention(filled, key_padding_mask=real)[real].sum().backward()
        results.append({name: p.grad.clone() for name, p in attention.named_parameters()})
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("collapse", ["per_head", "full"])
@pytest.mark.parametrize(("G", "bias"), [(4, False), (2, True)])
def test_parameters_by_formula(G, bias, collapse):
    E, H, P = 16, 4, 3
    attention = layer(num_kv_heads=G, bias=bias, collapse=collapse)
    mixing = sum(p.numel() for n, p in attention.named_parameters() if "alpha" in n or n == "collapse")
    assert attention.num_mixing_parameters() == mixing
    if G == H and collapse == "full":
        assert mixing == 4 * H * H * P  # the paper's count
    D = E // H
    projections = 2 * E * H * D + 2 * E * G * D + (bias and H * D + 2 * G * D + E)
    assert sum(p.numel() for p in attention.parameters()) == projections + mixing


def test_it_says_what_it_is():
    text = repr(layer(window=7, rope_theta=500.0))
    for part in ("num_heads=4", "num_kv_heads=2", "num_pseudo_heads=3", "window=7", "rope_theta=500", "'per_head'"):
        assert part in text


def test_it_survives_saving_and_loading_on_the_meta_device():
    source = layer()
    target = layer(device="meta", dtype=torch.float64).to_empty(device="cpu")
    target.load_state_dict(source.state_dict())
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    assert torch.equal(source(x), target(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("init", INITIALISATIONS)
def test_low_precision_layers_can_be_made_and_trained(init, dtype):
    pairs = {"num_pseudo_heads": 2, "num_mixed_heads": 2, "collapse": "full"} if init == "paired_heads" else {}
    attention = layer(dtype=dtype, init=init, **pairs)
    x = torch.randn(2, 9, 16, dtype=dtype)
    attention(x).float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_dim": 15}, "4 heads, 15 wide"),
        ({"num_heads": 0, "num_kv_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_kv_heads": 3}, "3 k/v heads, 4 heads"),
        ({"num_pseudo_heads": 0}, "got 0"),
        ({"window": 0}, "got 0"),
        ({"causal": "backwards"}, "'backwards'"),
        ({"collapse": "none"}, "'none'"),
        ({"init": "zeros"}, "'zeros'"),
        ({"backend": "fast"}, "'fast'"),
        ({"rope_positions": "both"}, "'both'"),
        ({"rope_theta": 10.0, "head_dim": 3}, "even, got 3"),
        ({"rope_theta": 10.0, "init": "warm_start"}, "rope_positions='token'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        layer(**options)


def test_bad_inputs_are_named():
    attention = layer()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"embed_dim=16.*\(2, 5, 15\)"):
        attention(x[..., :15])
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        attention(x, key_padding_mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="causal=None"):
        layer(causal=None)(x, cache=iha.KVCache())
    cache = iha.KVCache()
    attention(x, cache=cache)
    with pytest.raises(ValueError, match="holds 2 sequences, cannot append 1"):
        attention(x[:1], cache=cache)
    with pytest.raises(ValueError, match="every chunk or for none"):
        attention(x, cache=cache, document_ids=torch.zeros(2, 5, dtype=torch.long))
