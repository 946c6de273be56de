"""Caches and `generate`: whatever the way, the tokens are those of the whole computation."""

import pytest
import torch
from tiny import KINDS, tiny_model, tokens
from transformers import CompileConfig, DynamicCache, StaticCache

from iha.models import IHAForCausalLM
from iha.models.cache import cache_bytes

TIGHT = {"rtol": 0, "atol": 5e-5}


def _argmax_loop(model: IHAForCausalLM, x: torch.Tensor, steps: int) -> torch.Tensor:
    """Greedy decoding by definition: no cache, the whole sequence every time."""
    with torch.no_grad():
        for _ in range(steps):
            x = torch.cat((x, model(x, use_cache=False).logits[:, -1:].argmax(-1)), dim=1)
    return x


def _left_padded(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    N = max(len(row) for row in rows)
    x = torch.stack([torch.cat((row.new_zeros(N - len(row)), row)) for row in rows])
    mask = torch.stack([(torch.arange(N) >= N - len(row)).long() for row in rows])
    return x, mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [(13, 1, 1, 1), (5, 7, 4), (1,) * 16, (3, 1, 9, 1, 2)])
@torch.no_grad()
def test_cached_against_uncached(kind: str, chunks: tuple[int, ...]) -> None:
    model, x = tiny_model(kind), tokens(2, 16)
    for cache in (None, DynamicCache(config=model.config), DynamicCache(), StaticCache(model.config, max_cache_len=20)):
        logits = []
        for chunk in x.split(chunks, dim=1):
            out = model(chunk, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logits.append(out.logits)
        torch.testing.assert_close(torch.cat(logits, dim=1), model(x).logits, **TIGHT)
        assert int(cache.get_seq_length()) == 16  # tokens, never tokens times pseudo-heads


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_the_argmax_loop(kind: str) -> None:
    model, x = tiny_model(kind), tokens(2, 7)
    expected = _argmax_loop(model, x, 12)
    assert len(expected[:, 7:].unique()) > 4, "the model says too little for this to be a test"
    for options in ({}, {"prefill_chunk_size": 3}, {"cache_implementation": "static"}, {"use_cache": False}):
        out = model.generate(x, max_new_tokens=12, do_sample=False, **options)
        torch.testing.assert_close(out, expected, msg=str(options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_left_padding(kind: str, cache: str) -> None:
    model = tiny_model(kind)
    rows = [tokens(1, n, seed=n)[0] for n in (9, 4, 6)]
    x, mask = _left_padded(rows)
    out = model.generate(x, attention_mask=mask, max_new_tokens=8, do_sample=False, cache_implementation=cache)
    for row, generated in zip(rows, out[:, 9:], strict=True):
        torch.testing.assert_close(generated, _argmax_loop(model, row[None], 8)[0, len(row) :])


@pytest.mark.parametrize("kind", ["iha", "iha-everywhere", "global_local"])
def test_beam_search_is_the_same_with_and_without_cache(kind: str) -> None:
    model, x = tiny_model(kind), tokens(2, 7)
    beams = {"num_beams": 3, "max_new_tokens": 9, "do_sample": False, "num_return_sequences": 2}
    torch.testing.assert_close(model.generate(x, **beams), model.generate(x, use_cache=False, **beams))


@pytest.mark.parametrize("kind", KINDS)
def test_assisted_generation_changes_nothing(kind: str) -> None:
    """A draft model that is right at times: candidates are taken, rejected, and the cache goes back."""
    model, x = tiny_model(kind), tokens(1, 7)
    assistant = tiny_model(kind)
    with torch.no_grad():
        for p in assistant.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    out = model.generate(x, assistant_model=assistant, max_new_tokens=14, do_sample=False)
    torch.testing.assert_close(out, _argmax_loop(model, x, 14))


def test_continuing_from_a_cache() -> None:
    model, x = tiny_model(), tokens(1, 7)
    first = model.generate(x, max_new_tokens=5, do_sample=False, return_dict_in_generate=True)
    second = model.generate(first.sequences, past_key_values=first.past_key_values, max_new_tokens=5, do_sample=False)
    torch.testing.assert_close(second, _argmax_loop(model, x, 10))


def test_sampling_with_a_seed() -> None:
    model, x = tiny_model(), tokens(1, 7)
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(model.generate(x, max_new_tokens=9, do_sample=True, temperature=0.8, top_p=0.9, top_k=20))
    torch.testing.assert_close(*draws)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iha", "iha-everywhere", "differential"])
def test_compiled_decoding_with_a_static_cache(kind: str) -> None:
    model = tiny_model(kind)
    torch._dynamo.reset()
    rows = [tokens(1, n, seed=n)[0] for n in (6, 4)]
    x, mask = _left_padded(rows)
    config = CompileConfig(fullgraph=True, mode="default")
    config._compile_all_devices = True  # off by default on CPU
    options = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static", "compile_config": config}
    out = model.generate(x, attention_mask=mask, **options)
    for row, generated in zip(rows, out[:, 6:], strict=True):
        torch.testing.assert_close(generated, _argmax_loop(model, row[None], 8)[0, len(row) :])


@torch.no_grad()
def test_a_window_layer_keeps_its_window() -> None:
    """reach_back tokens a local layer, all of them a global one; pseudo-heads cost nothing."""
    model = tiny_model("iha")  # window 4, virtual causality: 4 tokens back; layer 3 of 3 is global
    cache = model(tokens(1, 16)).past_key_values
    assert [layer.keys.shape[2] for layer in cache.layers] == [4, 4, 16]
    bytes_a_token = 2 * model.config.num_key_value_heads * model.config.head_dim * 4
    assert cache_bytes(cache) == (4 + 4 + 16) * bytes_a_token
