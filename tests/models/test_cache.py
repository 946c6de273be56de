"""Every cache, every window, every chunking: the logits are those of the whole computation."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_model, tokens
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from iha.models import IHAConfig, IHAForCausalLM
from iha.models.cache import append

TIGHT: dict[str, Any] = {"rtol": 0, "atol": 5e-5}


def of_subclasses(config: IHAConfig, N: int) -> DynamicCache:
    """Layers that the model does not know: they are extended by their own `update`, as `transformers` wrote it."""
    cache = DynamicCache(config=config)
    for layer in cache.layers:
        layer.__class__ = type("Foreign", (type(layer),), {})
    return cache


CACHES = {
    "ours": lambda config, N: None,
    "dynamic": lambda config, N: DynamicCache(config=config),
    "plain": lambda config, N: DynamicCache(),
    "of subclasses": of_subclasses,
    "static": lambda config, N: StaticCache(config, max_cache_len=N + 3),
    "exactly full": lambda config, N: StaticCache(config, max_cache_len=N),
}


def in_chunks(model: IHAForCausalLM, x: torch.Tensor, sizes: list[int], cache: Any, **options: Any) -> torch.Tensor:
    logits = []
    for chunk in x.split(sizes, dim=1):
        out = model(chunk, past_key_values=cache, use_cache=True, **options)
        cache = out.past_key_values
        logits.append(out.logits)
    return torch.cat(logits, dim=1)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(CACHES)),
    st.lists(st.integers(1, 5), min_size=1, max_size=7),
    st.fixed_dictionaries(
        {
            "attention": st.sampled_from(["iha", "iha", "global_local"]),
            "window": st.integers(1, 6),
            "global_every": st.sampled_from([None, 2, 3]),
            "num_pseudo_heads": st.integers(1, 3),
            "causal": st.sampled_from(["virtual", "token"]),
            "rope_positions": st.sampled_from(["virtual", "token"]),
            "collapse": st.sampled_from(["per_head", "full"]),
            "num_key_value_heads": st.sampled_from([1, 2, 4]),
        }
    ),
    st.booleans(),
)
@torch.no_grad()
def test_every_window_cache_and_chunking(kind: str, sizes: list[int], fields: dict[str, Any], padded: bool) -> None:
    N = sum(sizes)
    model, x = tiny_model(**fields), tokens(2, N)
    mask = torch.ones_like(x)
    if padded:
        mask[1, : min(3, N - 1)] = 0
    whole = model(x, attention_mask=mask).logits
    cache, logits, seen = CACHES[kind](model.config, N), [], 0
    for chunk in x.split(sizes, dim=1):
        seen += chunk.shape[1]
        out = model(chunk, attention_mask=mask[:, :seen], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits.append(out.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1)[mask.bool()], whole[mask.bool()], **TIGHT)


@pytest.mark.parametrize("fields", [{"causal": "token"}, {"num_pseudo_heads": 1}, {"attention": "global_local"}])
@pytest.mark.parametrize("kind", CACHES)
@torch.no_grad()
def test_a_window_that_reaches_back_no_token(fields: dict[str, Any], kind: str) -> None:
    """A window of 1: the caches of `transformers` would slice [-0:] and keep everything."""
    model, x = tiny_model(window=1, global_every=None, **fields), tokens(2, 9)
    for sizes in ([1] * 9, [4, 1, 1, 3], [9]):
        found = in_chunks(model, x, sizes, CACHES[kind](model.config, 9))
        torch.testing.assert_close(found, model(x).logits, **TIGHT)


@pytest.mark.parametrize("model_kind", ["iha", "iha-token", "global_local", "talking_heads"])
@pytest.mark.parametrize("kind", CACHES)
@torch.no_grad()
def test_a_refused_forward_leaves_the_cache_as_it_was(kind: str, model_kind: str) -> None:
    model, x = tiny_model(model_kind), tokens(2, 9)
    cache = model(x[:, :4], past_key_values=CACHES[kind](model.config, 9), use_cache=True).past_key_values
    new: dict[str, Any] = {"input_ids": x[:, 4:5]}
    for bad, message in (
        ({"input_ids": x[:1, 4:5]}, "the cache holds a batch of 2, the new tokens are a batch of 1"),
        ({"input_ids": x[:, 4:5].repeat(2, 1)}, "the cache holds a batch of 2, the new tokens are a batch of 4"),
        (new | {"attention_mask": torch.ones(2, 1, 1, 5)}, "4-D masks"),
        (new | {"attention_mask": torch.ones(2, 3)}, r"\(2, 5\), got \(2, 3\)"),
        (new | {"attention_mask": torch.ones(3, 5)}, r"\(2, 5\), got \(3, 5\)"),
        (new | {"document_ids": torch.zeros(2, 1, dtype=torch.long)}, "a cache cannot continue packed documents"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**bad, past_key_values=cache)
    torch.testing.assert_close(in_chunks(model, x[:, 4:], [1, 3, 1], cache), model(x).logits[:, 4:], **TIGHT)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["iha", "iha-uneven", "global_local", "talking_heads", "differential"])
@torch.no_grad()
def test_attention_weights_over_a_static_cache(kind: str, compiled: bool) -> None:
    """Those of the whole computation, column by column; nothing at slots that are not filled yet."""
    model, x, T = tiny_model(kind, window=20), tokens(2, 9), 12
    model.set_attn_implementation("eager")
    whole = model(x, output_attentions=True).attentions
    torch._dynamo.reset()
    run, cache, seen = model, StaticCache(model.config, max_cache_len=T), 0
    for chunk in x.split([4, 1, 1, 3], dim=1):
        found = run(chunk, past_key_values=cache, output_attentions=True).attentions
        run = torch.compile(model, backend="eager") if compiled else model  # prefill is not, as in `generate`
        seen += chunk.shape[1]
        for layer, weights, wanted in zip(model.model.layers, found, whole, strict=True):
            P, P_k = layer.self_attn.visibility.per_token
            expected = torch.zeros_like(weights)
            expected[..., : seen * P_k] = wanted[..., (seen - chunk.shape[1]) * P : seen * P, : seen * P_k]
            assert weights.shape[2:] == (chunk.shape[1] * P, T * P_k)
            torch.testing.assert_close(weights, expected, **TIGHT)


@torch.no_grad()
def test_the_cache_has_the_ordinary_shape() -> None:
    model = tiny_model("iha-everywhere")
    cache = model(tokens(2, 7), use_cache=True).past_key_values
    assert all(layer.keys.shape == layer.values.shape == (2, 2, 7, 8) for layer in cache.layers)  # B, G, N, D


def test_prefill_in_inference_mode_then_going_on() -> None:
    model, x = tiny_model(), tokens(1, 9)
    with torch.inference_mode():
        cache = model(x[:, :5], use_cache=True).past_key_values
        cache = model(x[:, 5:6], past_key_values=cache).past_key_values
    with torch.no_grad():
        logits = [model(x[:, t : t + 1], past_key_values=cache).logits for t in (6, 7, 8)]
        torch.testing.assert_close(torch.cat(logits, dim=1), model(x).logits[:, 6:], **TIGHT)


@pytest.mark.parametrize("kind", ["iha", "global", "differential"])
def test_gradients_through_cached_decoding(kind: str) -> None:
    model, x = tiny_model(kind), tokens(2, 6)
    gradients = []
    for sizes in ([6], [3, 1, 1, 1]):
        model.zero_grad()
        in_chunks(model, x, sizes, None).square().mean().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["iha", "iha-token", "global"])
@torch.no_grad()
def test_copies_of_a_cache_go_on_apart(kind: str) -> None:
    """A shared prefix, continued twice: by a deep copy, and by copies of the layers that share their memory."""
    model, prefix = tiny_model(kind), tokens(1, 6)
    ends = [tokens(1, 3, seed=s) for s in (1, 2)]

    def shallow(cache: DynamicCache) -> DynamicCache:
        twin = copy.copy(cache)
        twin.layers = [copy.copy(layer) for layer in cache.layers]
        return twin

    for copied in (copy.deepcopy, shallow):
        caches = [model(prefix, use_cache=True).past_key_values]
        model(prefix[:, :1], past_key_values=copy.deepcopy(caches[0]))  # a copy that is thrown away
        caches.append(copied(caches[0]))
        for t in range(3):  # in turns
            for cache, end in zip(caches, ends, strict=True):
                logits = model(end[:, t : t + 1], past_key_values=cache).logits
                whole = model(torch.cat((prefix, end[:, : t + 1]), dim=1)).logits[:, -1:]
                torch.testing.assert_close(logits, whole, **TIGHT)


@torch.no_grad()
def test_nothing_is_hung_on_a_foreign_cache() -> None:
    model, x = tiny_model("iha-everywhere"), tokens(1, 6)
    cache = DynamicCache(config=model.config)
    usual = set(vars(DynamicLayer()))
    for t in range(6):
        model(x[:, t : t + 1], past_key_values=cache)
    assert all(set(vars(layer)) - {"dtype", "device"} == usual for layer in cache.layers)


def test_no_state_is_written_in_forward() -> None:
    model, x = tiny_model(), tokens(1, 6)
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    with torch.no_grad():
        model.generate(x, max_new_tokens=3, do_sample=False)
    for name, module in model.named_modules():
        if "self_attn" in name:
            assert set(vars(module)) == set(before[name]), name
            assert vars(module).get("backend") == before[name].get("backend")


@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_crops_reorders_and_repeats_as_cat_would(window: int | None) -> None:
    new = torch.randn(2, 3, 4, 5)
    plain, ours = DynamicCache(), DynamicCache()
    for cache in (plain, ours):
        cache.layers = [DynamicLayer() if window is None else DynamicSlidingWindowLayer(window)]
    for change in (
        None, None if window else lambda layer: layer.crop(-2),
        lambda layer: layer.reorder_cache(torch.tensor([1, 0])), lambda layer: layer.batch_repeat_interleave(2),
        lambda layer: layer.batch_select_indices(torch.tensor([0, 3])), lambda layer: layer.reset(),
    ):  # fmt: skip
        for step in (4, 1):
            returned = []
            for cache, update in ((plain, plain.update), (ours, lambda k, v, index: append(ours, index, k, v))):
                if change is not None and step == 4:
                    change(cache.layers[0])
                B = cache.layers[0].keys.shape[0] if cache.layers[0].is_initialized else 2
                returned.append(update(*(t[None, :, :step].expand(B, -1, -1, -1) for t in new), 0))
            for expected, found in zip(returned[0], returned[1], strict=True):
                assert torch.equal(expected, found)
        assert torch.equal(plain.layers[0].keys, ours.layers[0].keys)
        assert torch.equal(plain.layers[0].values, ours.layers[0].values)


@torch.no_grad()
def test_a_dynamic_cache_is_extended_in_place() -> None:
    """Token by token nothing is copied: the keys stay where they are in memory."""
    model, x = tiny_model("iha-everywhere"), tokens(1, 9)
    cache = model(x[:, :4]).past_key_values
    model(x[:, 4:5], past_key_values=cache)  # the first token after the prefill makes room
    places = [layer.keys.data_ptr() for layer in cache.layers]
    for t in range(5, 9):
        model(x[:, t : t + 1], past_key_values=cache)
        assert [layer.keys.data_ptr() for layer in cache.layers] == places


@torch.no_grad()
def test_offloaded_to_disk(tmp_path: Any) -> None:
    """Weights on the meta device until a layer runs: nothing may be read off `o_proj.weight`."""
    accelerate = pytest.importorskip("accelerate")
    model, x = tiny_model(), tokens(1, 7)
    options = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    expected = model.generate(x, **options).logits
    offloaded = accelerate.disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    # Logits and not tokens: the largest of them may stay the largest in what is wrong. Hooks leave one row to torch's
    # product instead of our own, so they agree up to rounding.
    torch.testing.assert_close(offloaded.generate(x, **options).logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_dynamic_quantisation_decodes() -> None:
    """Projections whose weights are of an integer type: cached logits are those of the quantised model's forward."""
    model = torch.ao.quantization.quantize_dynamic(tiny_model(), {torch.nn.Linear}, dtype=torch.qint8)
    x = tokens(1, 9)
    mask = torch.ones_like(x)
    mask[0, :2] = 0
    cache, logits = None, []
    for t in range(9):
        out = model(x[:, t : t + 1], attention_mask=mask[:, : t + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits.append(out.logits)
    # Activations are quantised per call, a token at a time or nine: close, not equal.
    whole = model(x, attention_mask=mask).logits
    torch.testing.assert_close(torch.cat(logits, dim=1)[:, 2:], whole[:, 2:], rtol=0, atol=0.5)
