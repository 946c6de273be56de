"""The encoder–decoder: decoding with its two caches, `generate`, its outputs, its files."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from tiny import KINDS, VOCABULARY, assert_learns, tokens
from tiny_seq2seq import PAD, START, padded_source, seq2seq
from transformers import AutoModel, AutoModelForSeq2SeqLM, EncoderDecoderCache

from iha.layers.cross import CrossAttention
from iha.models import IHAEncoderDecoderModel, IHAForConditionalGeneration

TIGHT = {"rtol": 0, "atol": 2e-5}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@torch.no_grad()
def test_cached_decoding_is_the_whole_forward(kind: str) -> None:
    """In chunks of several tokens and of one, with a padded input and windows shorter than it."""
    model, (x, mask), y = seq2seq(kind), padded_source(), tokens(2, 8, seed=4)
    whole = model(x, attention_mask=mask, decoder_input_ids=y, use_cache=False)
    encoded = model.model.encoder(x, attention_mask=mask)
    with mock.patch.object(CrossAttention, "remember", autospec=True, side_effect=CrossAttention.remember) as remember:
        cache, parts = None, []
        for a, b in [(0, 3), (3, 4), (4, 6), (6, 7), (7, 8)]:
            out = model(
                encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=y[:, a:b], past_key_values=cache,
                use_cache=True,
            )  # fmt: skip
            cache = out.past_key_values
            parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole.logits, **TIGHT)
    assert remember.call_count == model.config.num_hidden_layers, "keys and values of the input are computed once"
    assert whole.past_key_values is None
    assert isinstance(cache, EncoderDecoderCache)
    assert all(layer.keys.shape == (2, 2, 9, 8) for layer in cache.cross_attention_cache.layers)


@every_kind
@torch.no_grad()
def test_padding_of_the_input_changes_nothing(kind: str) -> None:
    model, x, y = seq2seq(kind), tokens(1, 6), tokens(1, 7, seed=4)
    alone = model(x, decoder_input_ids=y).logits
    for padding in ((0, 3), (3, 0)):
        mask = F.pad(torch.ones_like(x), padding)
        found = model(F.pad(x, padding), attention_mask=mask, decoder_input_ids=y).logits
        torch.testing.assert_close(found, alone, **TIGHT)
    other = x.clone()
    other[:, 3] = (other[:, 3] + 1) % VOCABULARY
    assert (model(other, decoder_input_ids=y).logits[:, 0] - alone[:, 0]).abs().max() > 1e-3


@every_kind
@torch.no_grad()
def test_greedy_generation_is_argmax_step_by_step(kind: str) -> None:
    model, (x, mask) = seq2seq(kind), padded_source()
    y = torch.full((2, 1), START)
    for _ in range(6):
        logits = model(x, attention_mask=mask, decoder_input_ids=y, use_cache=False).logits
        y = torch.cat((y, logits[:, -1:].argmax(dim=-1)), dim=1)
    found = model.generate(x, attention_mask=mask, max_new_tokens=6, do_sample=False)
    assert torch.equal(found, y)


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2, "do_sample": True}, {"do_sample": True, "top_k": 5}],
    ids=str,
)
@torch.no_grad()
def test_beams_and_samples_are_those_without_a_cache(options: dict[str, Any]) -> None:
    model, (x, mask) = seq2seq("iha"), padded_source()
    found = []
    for use_cache in (True, False):
        torch.manual_seed(7)
        found.append(model.generate(x, attention_mask=mask, max_new_tokens=8, use_cache=use_cache, **options))
    assert torch.equal(*found)
    assert len({tuple(row) for row in found[0].tolist()}) > 1


def test_the_loss_is_that_of_the_labels_after_the_start_token() -> None:
    model, (x, mask), y = seq2seq(), padded_source(), tokens(2, 5, seed=4)
    labels = y.clone()
    labels[1, 3:] = -100
    out = model(x, attention_mask=mask, labels=labels)
    inputs = torch.cat((torch.full((2, 1), START), y[:, :-1]), dim=1)
    inputs[1, 4] = PAD
    logits = model(x, attention_mask=mask, decoder_input_ids=inputs).logits
    torch.testing.assert_close(out.loss, F.cross_entropy(logits[labels != -100], labels[labels != -100]))


def test_eager_shows_all_attentions() -> None:
    model, (x, mask), y = seq2seq(), padded_source(), tokens(2, 5, seed=4)
    wanted = model(x, attention_mask=mask, decoder_input_ids=y).logits
    model.set_attn_implementation("eager")
    out = model(x, attention_mask=mask, decoder_input_ids=y, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits, wanted, **TIGHT)
    assert [tuple(a.shape) for a in out.cross_attentions] == [(2, 4, 10, 18)] * 3
    assert [tuple(a.shape) for a in out.decoder_attentions] == [(2, 4, 10, 10), (2, 4, 10, 10), (2, 4, 5, 5)]
    assert [tuple(a.shape) for a in out.encoder_attentions] == [(2, 4, 18, 18), (2, 4, 18, 18), (2, 4, 9, 9)]
    assert len(out.decoder_hidden_states) == len(out.encoder_hidden_states) == 4
    hidden = out.cross_attentions[0][1, :, :, 12:]  # the pseudo-keys of the second input's padding
    assert hidden.abs().max() == 0


@pytest.mark.parametrize("tied", [True, False])
def test_trains_saves_and_is_found(tied: bool, tmp_path: Path) -> None:
    model, (x, mask), labels = seq2seq(tie_word_embeddings=tied).train(), padded_source(), tokens(2, 5, seed=4)
    assert_learns(model, x, attention_mask=mask, labels=labels)
    model.eval().save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(loaded) is IHAForConditionalGeneration
    for (name, a), (_, b) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, msg=name)
    found = loaded.generate(x, attention_mask=mask, max_new_tokens=4, do_sample=False)
    assert torch.equal(found, model.generate(x, attention_mask=mask, max_new_tokens=4, do_sample=False))
    assert (loaded.model.encoder.embed_tokens.weight is loaded.model.decoder.embed_tokens.weight) is tied
    assert (loaded.lm_head.weight is loaded.model.decoder.embed_tokens.weight) is tied
    assert type(AutoModel.from_pretrained(tmp_path)) is IHAEncoderDecoderModel


def test_a_larger_vocabulary_is_one_matrix() -> None:
    model, (x, mask), y = seq2seq(tie_word_embeddings=True), padded_source(), tokens(2, 5, seed=4)
    before = model(x, attention_mask=mask, decoder_input_ids=y).logits
    model.resize_token_embeddings(VOCABULARY + 3)
    after = model(x, attention_mask=mask, decoder_input_ids=y).logits
    torch.testing.assert_close(after[..., :VOCABULARY], before, **TIGHT)
    assert model.model.encoder.embed_tokens.weight is model.lm_head.weight
    with pytest.raises(ValueError, match="tie_word_embeddings=False"):
        seq2seq(tie_word_embeddings=False).resize_token_embeddings(VOCABULARY + 3)


def test_gradient_checkpointing_gives_equal_gradients() -> None:
    model, (x, mask), labels = seq2seq().train(), padded_source(), tokens(2, 5, seed=4)
    gradients = []
    for _ in range(2):
        model.zero_grad()
        model(x, attention_mask=mask, labels=labels).loss.backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        model.gradient_checkpointing_enable()
    assert gradients[0].keys() == gradients[1].keys() == dict(model.named_parameters()).keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=0, atol=1e-5, msg=name)


def test_what_cannot_be_is_refused() -> None:
    model, x, y = seq2seq(), tokens(1, 4), tokens(1, 3)
    with pytest.raises(ValueError, match="cache_implementation='static'"):
        model.generate(x, cache_implementation="static", max_new_tokens=2)
    with pytest.raises(ValueError, match="labels need decoder_start_token_id"):
        seq2seq(decoder_start_token_id=None)(x, labels=y)
