"""The encoder: against Llama without a mask, against the reference operator, its masks, its heads, its files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import KINDS, VOCABULARY, assert_learns, tokens
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    LlamaConfig,
    LlamaModel,
)

from iha.models import (
    IHAEncoderConfig,
    IHAEncoderForSequenceClassification,
    IHAEncoderModel,
    IHAForMaskedLM,
)
from iha.models.encoder import pool
from iha.ops import reference

TIGHT = {"rtol": 0, "atol": 2e-5}
WITHOUT_CAUSALITY = {name: {k: v for k, v in fields.items() if k != "causal"} for name, fields in KINDS.items()}
every_kind = pytest.mark.parametrize("kind", KINDS)


def tiny(kind: str = "iha", **overrides: Any) -> IHAEncoderConfig:
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2,
        "pad_token_id": 0,
    }  # fmt: skip
    return IHAEncoderConfig(**{**fields, **WITHOUT_CAUSALITY[kind], **overrides})


def built(model_class: Any, kind: str = "iha", **overrides: Any) -> Any:
    torch.manual_seed(0)
    return model_class(tiny(kind, **overrides)).eval()


def test_multi_head_encoder_is_llama_without_a_mask() -> None:
    """Another library's model with the same tensors, whose 4-D mask lets everything through."""
    ours = built(IHAEncoderModel, "global")
    config = LlamaConfig(**{**ours.config.to_dict(), "model_type": "llama", "attn_implementation": "eager"})
    theirs = LlamaModel(config).eval()
    theirs.load_state_dict(ours.state_dict())
    x = tokens(2, 11)
    wanted = theirs(x, attention_mask=torch.zeros(2, 1, 11, 11)).last_hidden_state
    torch.testing.assert_close(ours(x).last_hidden_state, wanted, **TIGHT)


@pytest.mark.parametrize("window", [0, 3])
@torch.no_grad()
def test_interleaved_encoder_is_the_reference_operator_layer_by_layer(window: int) -> None:
    model = built(IHAEncoderModel, window=window, global_every=None, num_pseudo_heads=2, collapse="full").double()
    config, x = model.config, tokens(2, 9)
    mask = torch.arange(9)[None] < torch.tensor([[9], [6]])  # the second sequence is padded on the right
    hidden = model.embed_tokens(x)
    for layer in model.layers:
        a, normed = layer.self_attn, layer.input_layernorm(hidden)
        q, k, v = (proj(normed).unflatten(-1, (-1, 8)) for proj in (a.q_proj, a.k_proj, a.v_proj))
        heads = reference.interleaved_head_attention(
            q, k, v, *a.mixing, causal=None, window=window or None, rope_theta=config.rope_parameters["rope_theta"],
            key_padding_mask=mask,
        )  # fmt: skip
        hidden = hidden + a.o_proj(heads.flatten(2))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    found = model(x, attention_mask=mask.long()).last_hidden_state
    # The model's RoPE tables are float32, as those of transformers.
    torch.testing.assert_close(found[mask], model.norm(hidden)[mask], rtol=0, atol=1e-5)


@every_kind
def test_every_token_sees_later_ones(kind: str) -> None:
    model, x = built(IHAForMaskedLM, kind), tokens(2, 12)
    y = x.clone()
    y[:, 5] = (y[:, 5] + 1) % VOCABULARY  # within reach of three layers with the smallest window
    assert (model(x).logits[:, 0] - model(y).logits[:, 0]).abs().max() > 1e-4


def test_a_window_sees_both_sides() -> None:
    model, x = built(IHAForMaskedLM, "iha", window=3, num_hidden_layers=1, global_every=None), tokens(1, 12)
    y = x.clone()
    y[:, 6] = (y[:, 6] + 1) % VOCABULARY
    changed = (model(x).logits - model(y).logits).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.nonzero().flatten().tolist() == [4, 5, 6, 7, 8]


@every_kind
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_against_unpadded(kind: str, side: str) -> None:
    model, x = built(IHAForMaskedLM, kind), tokens(1, 9)
    before, after = (5, 0) if side == "left" else (0, 5)
    padded, mask = F.pad(x, (before, after)), F.pad(torch.ones_like(x), (before, after))
    logits = model(padded, attention_mask=mask).logits[:, before : before + 9]
    torch.testing.assert_close(logits, model(x).logits, **TIGHT)


@every_kind
def test_packed_documents(kind: str) -> None:
    model, a, b = built(IHAForMaskedLM, kind), tokens(1, 7), tokens(1, 6, seed=1)
    packed, documents = torch.cat((a, b), dim=1), torch.tensor([[4] * 7 + [9] * 6])
    expected = torch.cat((model(a).logits, model(b).logits), dim=1)
    torch.testing.assert_close(model(packed, document_ids=documents).logits, expected, **TIGHT)


def test_the_loss_is_that_of_the_masked_tokens() -> None:
    model, x = built(IHAForMaskedLM), tokens(2, 10)
    labels = x.masked_fill(torch.arange(10) % 3 > 0, -100)
    out = model(x, labels=labels)
    wanted = F.cross_entropy(out.logits[labels != -100], labels[labels != -100])
    torch.testing.assert_close(out.loss, wanted)


def test_eager_shows_the_attentions() -> None:
    model, x = built(IHAForMaskedLM), tokens(2, 6)
    wanted = model(x).logits
    model.set_attn_implementation("eager")
    out = model(x, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits, wanted, **TIGHT)
    assert [tuple(a.shape) for a in out.attentions] == [(2, 4, 12, 12), (2, 4, 12, 12), (2, 4, 6, 6)]
    assert len(out.hidden_states) == 4


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_pooling_ignores_padding(pooling: str) -> None:
    model, x = built(IHAEncoderForSequenceClassification, num_labels=3, classifier_pooling=pooling), tokens(1, 7)
    for padding in ((4, 0), (0, 4)):
        logits = model(F.pad(x, padding), attention_mask=F.pad(torch.ones_like(x), padding)).logits
        torch.testing.assert_close(logits, model(x).logits, **TIGHT)
    states = torch.randn(2, 3, 5)
    mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    wanted = (states[0, 1:].mean(0), states[1, :2].mean(0)) if pooling == "mean" else (states[0, 1], states[1, 0])
    torch.testing.assert_close(pool(states, mask, pooling), torch.stack(wanted))


@pytest.mark.parametrize(
    ("head", "auto", "labels"),
    [
        (IHAForMaskedLM, AutoModelForMaskedLM, tokens(2, 5, seed=3)),
        (IHAEncoderForSequenceClassification, AutoModelForSequenceClassification, torch.tensor([0, 2])),
    ],
)
def test_trains_saves_and_is_found(head: type, auto: Any, labels: Tensor, tmp_path: Path) -> None:
    model, x = built(head, num_labels=3).train(), tokens(2, 5)
    assert_learns(model, x, labels=labels)
    model.eval().save_pretrained(tmp_path)
    loaded = auto.from_pretrained(tmp_path)
    assert type(loaded) is head
    torch.testing.assert_close(loaded(x).logits, model(x).logits, rtol=0, atol=0)
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is IHAEncoderModel
    torch.testing.assert_close(base(x).last_hidden_state, model.model(x).last_hidden_state, rtol=0, atol=0)


def test_what_an_encoder_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match=r"causal must be one of \(None,\), got 'token'"):
        tiny(causal="token")
    with pytest.raises(ValueError, match=r"classifier_pooling must be one of .* got 'last'"):
        tiny(classifier_pooling="last")
    with pytest.raises(ValueError, match="use_cache=True"):
        tiny(use_cache=True)
    with pytest.raises(ValueError, match="an encoder has no cache"):
        built(IHAEncoderModel)(tokens(1, 3), use_cache=True)
    with pytest.raises(ValueError, match="not a configuration of this model"):
        IHAEncoderConfig(hidden_size="wide")
