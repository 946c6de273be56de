"""The backbone: shapes, loss, masks, documents, gradients, attention implementations."""

import pytest
import torch
import torch.nn.functional as F
from tiny import KINDS, VOCABULARY, tiny_config, tiny_model, tokens

from iha.models import IHAModel

TIGHT = {"rtol": 0, "atol": 2e-5}


@pytest.mark.parametrize("kind", KINDS)
def test_causal_and_windowed(kind: str) -> None:
    """Changing a token changes no earlier logits, and does change its own."""
    model, x = tiny_model(kind), tokens(2, 12)
    y = x.clone()
    y[:, 7] = (y[:, 7] + 1) % VOCABULARY
    before, after = model(x).logits, model(y).logits
    torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=0)
    assert (before[:, 7] - after[:, 7]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_batch_against_single(kind: str) -> None:
    model, x = tiny_model(kind), tokens(3, 11)
    singles = torch.cat([model(row[None]).logits for row in x])
    torch.testing.assert_close(model(x).logits, singles, **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_against_unpadded(kind: str, side: str) -> None:
    model, x = tiny_model(kind), tokens(1, 9)
    before, after = (5, 0) if side == "left" else (0, 5)
    padded = F.pad(x, (before, after), value=0)
    mask = F.pad(torch.ones_like(x), (before, after))
    logits = model(padded, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    torch.testing.assert_close(logits[:, before : before + 9], model(x).logits, **TIGHT)
    # RoPE is relative: positions that count the padding give the same.
    logits = model(padded, attention_mask=mask).logits
    torch.testing.assert_close(logits[:, before : before + 9], model(x).logits, **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_documents(kind: str) -> None:
    model, a, b = tiny_model(kind), tokens(1, 7), tokens(1, 6, seed=1)
    packed = torch.cat((a, b), dim=1)
    expected = torch.cat((model(a).logits, model(b).logits), dim=1)
    positions = torch.cat((torch.arange(7), torch.arange(6)))[None]
    torch.testing.assert_close(model(packed, position_ids=positions).logits, expected, **TIGHT)
    documents = torch.tensor([[4] * 7 + [9] * 6])
    torch.testing.assert_close(model(packed, document_ids=documents).logits, expected, **TIGHT)
    assert (model(packed).logits - expected).abs().max() > 1e-3


def test_loss_is_the_next_token_cross_entropy() -> None:
    model, x = tiny_model(), tokens(2, 10)
    labels = x.clone()
    labels[:, :4] = -100
    out = model(x, labels=labels)
    expected = F.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, expected)


def test_logits_to_keep() -> None:
    model, x = tiny_model(), tokens(2, 10)
    torch.testing.assert_close(model(x, logits_to_keep=3).logits, model(x).logits[:, -3:], **TIGHT)
    kept = model(x, logits_to_keep=torch.tensor([1, 5])).logits
    torch.testing.assert_close(kept, model(x).logits[:, [1, 5]], **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_checkpointing_gives_equal_gradients(kind: str) -> None:
    model, x = tiny_model(kind).train(), tokens(2, 10)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        model(x, labels=x).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    plain = gradients()
    model.gradient_checkpointing_enable()
    checkpointed = gradients()
    assert all(g.abs().max() > 0 for g in plain.values()), "a parameter without gradient"
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_eager_is_the_same_and_gives_attentions(kind: str) -> None:
    model, x = tiny_model(kind), tokens(2, 9)
    mask = torch.ones_like(x)
    mask[1, :3] = 0
    expected = model(x, attention_mask=mask).logits
    model.set_attn_implementation("eager")
    out = model(x, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits[0], expected[0], **TIGHT)
    torch.testing.assert_close(out.logits[1, 3:], expected[1, 3:], **TIGHT)
    assert len(out.attentions) == 3
    assert len(out.hidden_states) == 4
    for layer, weights in zip(model.model.layers, out.attentions, strict=True):
        H, (P, P_k) = layer.self_attn.num_mixed_heads, layer.self_attn.visibility.per_token
        assert weights.shape == (2, H, 9 * P, 9 * P_k)
        if kind != "talking_heads":  # its weights are mixed after the softmax
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, H, 9 * P))
        of_tokens = weights.unflatten(2, (9, P)).unflatten(4, (9, P_k)).sum((3, 5))  # (2, H, 9, 9)
        assert of_tokens[0].triu(1).abs().max() == 0  # nothing ahead of the own token
        assert weights[1, :, 3 * P :, : 3 * P_k].abs().max() == 0  # nothing at padding


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_attentions_are_part_of_the_graph(kind: str, use_cache: bool) -> None:
    """What is shown is what the logits were computed from: it has a gradient."""
    model, x = tiny_model(kind), tokens(2, 9)
    model.set_attn_implementation("eager")
    out = model(x, output_attentions=True, use_cache=use_cache)
    for weights in out.attentions:
        weights.retain_grad()
    out.logits.square().mean().backward()
    assert all(weights.grad is not None and weights.grad.abs().max() > 0 for weights in out.attentions)


@pytest.mark.parametrize("kind", ["iha", "talking_heads", "differential"])
def test_eager_decoding_is_the_same(kind: str) -> None:
    model, x = tiny_model(kind), tokens(2, 9)
    expected = model.generate(x, max_new_tokens=6, do_sample=False)
    model.set_attn_implementation("eager")
    out = model.generate(x, max_new_tokens=6, do_sample=False, output_attentions=True, return_dict_in_generate=True)
    torch.testing.assert_close(out.sequences, expected)
    assert len(out.attentions) == 6


@pytest.mark.slow
def test_flex_attention_is_the_same() -> None:
    model, x = tiny_model(head_dim=16), tokens(1, 9)
    expected = model(x).logits
    model.set_attn_implementation("flex_attention")
    with torch.no_grad():
        torch.testing.assert_close(model(x).logits, expected, **TIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iha", "talking_heads", "differential"])
def test_compiled_forward_is_the_same(kind: str) -> None:
    model, x = tiny_model(kind), tokens(2, 12)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        torch.testing.assert_close(compiled(x, use_cache=False).logits, model(x).logits, **TIGHT)


def test_inputs_embeds_and_bad_inputs() -> None:
    model, x = tiny_model(), tokens(1, 5)
    torch.testing.assert_close(model(inputs_embeds=model.get_input_embeddings()(x)).logits, model(x).logits, **TIGHT)
    with pytest.raises(ValueError, match="exactly one"):
        model()
    with pytest.raises(ValueError, match=r"attention_mask must be .*\(1, 3\)"):
        model(x, attention_mask=torch.ones(1, 3))
    with pytest.raises(ValueError, match="document_ids"):
        model(x, document_ids=torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="document_ids"):
        model(x, past_key_values=model(x).past_key_values, document_ids=torch.zeros(1, 5, dtype=torch.long))


def test_tied_weights_are_one() -> None:
    model = tiny_model(tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    untied = tiny_model()
    assert untied.lm_head.weight is not untied.model.embed_tokens.weight
    assert not torch.equal(untied.lm_head.weight, untied.model.embed_tokens.weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    model, x = tiny_model(), tokens(1, 12)
    expected = model(x).logits.softmax(-1)
    half = model.to(dtype)
    assert half.model.rotary_emb.inv_freq.dtype == torch.float32, "RoPE frequencies must not be rounded"
    assert half(x).logits.dtype == dtype
    torch.testing.assert_close(half(x).logits.float().softmax(-1), expected, rtol=0, atol=0.08)


def test_base_model_has_no_head() -> None:
    out = IHAModel(tiny_config())(tokens(1, 5))
    assert out.last_hidden_state.shape == (1, 5, 32)
