"""The decoder of an encoder–decoder: layer by layer against the reference operator, and its configuration."""

import pytest
import torch
from tiny import tokens
from tiny_seq2seq import padded_source, seq2seq
from transformers import DynamicCache, EncoderDecoderCache

from iha.layers.cross import InterleavedCrossAttention, MultiHeadCrossAttention
from iha.models import IHAEncoderDecoderConfig
from iha.ops import reference
from iha.ops.cross import interleaved_cross_attention


@pytest.mark.parametrize("window", [0, 3])
@torch.no_grad()
def test_the_decoder_is_the_reference_operator_layer_by_layer(window: int) -> None:
    model = seq2seq(window=window, global_every=None, collapse="full", causal="token", rope_positions="token").double()
    config, (x, mask), y = model.config, padded_source(), tokens(2, 7, seed=4)
    theta = config.rope_parameters["rope_theta"]
    memory = model.model.encoder(x, attention_mask=mask).last_hidden_state
    hidden = model.model.decoder.embed_tokens(y)
    for layer in model.model.decoder.layers:
        a, normed = layer.self_attn, layer.input_layernorm(hidden)
        q, k, v = (proj(normed).unflatten(-1, (-1, 8)) for proj in (a.q_proj, a.k_proj, a.v_proj))
        heads = reference.interleaved_head_attention(
            q, k, v, *a.mixing, causal="token", window=window or None, rope_theta=theta, rope_positions="token"
        )
        hidden = hidden + a.o_proj(heads.flatten(2))
        c, normed = layer.cross_attn, layer.cross_attention_layernorm(hidden)
        q, k, v = (p(t).unflatten(-1, (-1, 8)) for p, t in ((c.q_proj, normed), (c.k_proj, memory), (c.v_proj, memory)))
        heads = interleaved_cross_attention(q, k, v, *c.mixing, key_padding_mask=mask.bool())[0]
        hidden = hidden + c.o_proj(heads.flatten(2))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    wanted = model.lm_head(model.model.decoder.norm(hidden))
    found = model(x, attention_mask=mask, decoder_input_ids=y).logits
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)  # the model's RoPE tables are float32


def test_the_configuration_builds_what_it_says() -> None:
    model = seq2seq("global", num_encoder_layers=2, cross_attention="iha", cross_pseudo_heads=3)
    assert len(model.model.encoder.layers) == 2
    assert len(model.model.decoder.layers) == 3
    cross = model.model.decoder.layers[0].cross_attn
    assert isinstance(cross, InterleavedCrossAttention)
    assert cross.num_pseudo_heads == 3
    assert isinstance(seq2seq("global").model.decoder.layers[0].cross_attn, MultiHeadCrossAttention)
    assert all(layer.self_attn.causal is None for layer in model.model.encoder.layers)
    again = IHAEncoderDecoderConfig(**{k: v for k, v in model.config.to_dict().items() if k != "model_type"})
    assert again.encoder_schedule == model.config.encoder_schedule


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cross_attention must be one of .* got 'talking_heads'"):
        seq2seq(cross_attention="talking_heads")
    with pytest.raises(ValueError, match="cross_pseudo_heads must be at least 1"):
        seq2seq(cross_pseudo_heads=0)
    with pytest.raises(ValueError, match="cross-attention has no dropout"):
        seq2seq(attention_dropout=0.1)
    with pytest.raises(ValueError, match="is_encoder_decoder=False"):
        seq2seq(is_encoder_decoder=False)
    model, x, y = seq2seq(), tokens(1, 4), tokens(1, 3)
    with pytest.raises(ValueError, match="must be an EncoderDecoderCache, got DynamicCache"):
        model(x, decoder_input_ids=y, past_key_values=DynamicCache())
    sliding = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    with pytest.raises(ValueError, match="sliding layers"):
        model(x, decoder_input_ids=y, past_key_values=sliding)
