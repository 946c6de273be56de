"""The vision transformer: patches, 2-D positions, the layers against the reference operator, its files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModel, AutoModelForImageClassification

from iha.models import IHAForImageClassification, IHAVisionConfig, IHAVisionModel
from iha.ops import reference

KINDS: dict[str, dict[str, Any]] = {
    "iha": {"attention": "iha", "num_pseudo_heads": 2},
    "iha-full": {"attention": "iha", "num_pseudo_heads": 3, "collapse": "full", "attention_gate": "headwise"},
    "global": {"attention": "global"},
    "talking_heads": {"attention": "talking_heads"},
    "differential": {"attention": "differential"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_positions = pytest.mark.parametrize("positions", ["rotary", "learned"])


def built(model_class: Any, kind: str = "iha", **overrides: Any) -> Any:
    fields: dict[str, Any] = {
        "image_size": 12, "patch_size": 4, "num_channels": 2, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
        "num_labels": 5,
    }  # fmt: skip
    torch.manual_seed(0)
    return model_class(IHAVisionConfig(**{**fields, **KINDS[kind], **overrides})).eval()


def images(B: int = 2) -> Tensor:
    return torch.randn(B, 2, 12, 12, generator=torch.Generator().manual_seed(1))


def turned(x: Tensor, theta: float) -> Tensor:
    """2-D RoPE of x (B, 9, heads, 8) feature by feature: pairs 0 and 1 by the row, pairs 2 and 3 by the column."""
    out = torch.empty_like(x)
    for n in range(9):
        for pair in range(4):
            angle = torch.tensor((n // 3 if pair < 2 else n % 3) * theta ** (-(pair % 2) / 2), dtype=x.dtype)
            a, b = x[:, n, :, pair], x[:, n, :, pair + 4]
            out[:, n, :, pair] = a * angle.cos() - b * angle.sin()
            out[:, n, :, pair + 4] = b * angle.cos() + a * angle.sin()
    return out


@both_positions
@torch.no_grad()
def test_it_is_the_reference_operator_on_patches(positions: str) -> None:
    model = built(IHAVisionModel, "iha", positions=positions, collapse="full").double()
    x = images().double()
    patches = F.unfold(x, 4, stride=4).transpose(1, 2)  # (B, 9, 2*4*4): each patch's pixels
    hidden = patches @ model.patch_embed.weight.flatten(1).T + model.patch_embed.bias
    if positions == "learned":
        n = torch.arange(9)
        hidden = hidden + model.row_embed(n // 3) + model.column_embed(n % 3)
    for layer in model.layers:
        a, normed = layer.self_attn, layer.input_layernorm(hidden)
        q, k, v = (proj(normed).unflatten(-1, (-1, 8)) for proj in (a.q_proj, a.k_proj, a.v_proj))
        if positions == "rotary":
            q, k = turned(q, 100.0), turned(k, 100.0)
        heads = reference.interleaved_head_attention(q, k, v, *a.mixing, causal=None)
        hidden = hidden + a.o_proj(heads.flatten(2))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    # The tables of the model are float32.
    torch.testing.assert_close(model(x).last_hidden_state, model.norm(hidden), rtol=0, atol=1e-5)


@every_kind
@both_positions
def test_every_patch_sees_every_other_and_knows_its_place(kind: str, positions: str) -> None:
    model, x = built(IHAForImageClassification, kind, positions=positions), images()
    y = x.clone()
    y[:, :, 8:, 8:] += 1  # the last patch
    before, after = model.model(x).last_hidden_state, model.model(y).last_hidden_state
    assert (before[:, 0] - after[:, 0]).abs().max() > 1e-3
    transposed = model(x.transpose(2, 3).contiguous()).logits
    swapped = model(torch.cat((x[:, :, :, 4:8], x[:, :, :, :4], x[:, :, :, 8:]), dim=3)).logits
    assert (model(x).logits - transposed).abs().max() > 1e-3
    assert (model(x).logits - swapped).abs().max() > 1e-3


@every_kind
@both_positions
def test_trains_saves_and_is_found(kind: str, positions: str, tmp_path: Path) -> None:
    model, x, labels = (
        built(IHAForImageClassification, kind, positions=positions).train(),
        images(),
        torch.tensor([1, 4]),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        out = model(x, labels=labels)
        torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, labels))
        losses.append(out.loss.item())
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    model.eval().save_pretrained(tmp_path)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert type(loaded) is IHAForImageClassification
    torch.testing.assert_close(loaded(x).logits, model(x).logits, rtol=0, atol=0)
    assert type(AutoModel.from_pretrained(tmp_path)) is IHAVisionModel


def test_eager_shows_the_attentions() -> None:
    model, x = built(IHAForImageClassification), images()
    wanted = model(x).logits
    model.set_attn_implementation("eager")
    out = model(x, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits, wanted, rtol=0, atol=2e-5)
    assert [tuple(a.shape) for a in out.attentions] == [(2, 4, 18, 18)] * 2
    assert len(out.hidden_states) == 3


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"patch_size": 5}, "patch_size must divide image_size: 5, 12"),
        ({"image_size": 0}, "image_size must be at least 1"),
        ({"positions": "none"}, "positions must be one of .* got 'none'"),
        ({"rope_positions": "virtual"}, "rope_positions='virtual'"),
        ({"window": 3}, "a layer has a window"),
        ({"head_dim": 6}, "multiple of 4: 6"),
        ({"classifier_pooling": "first"}, "classifier_pooling='first'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10.0}}, "rope_type"),
    ],
)
def test_malformed(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        built(IHAVisionModel, **fields)


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(B, 2, 12, 12\), got \(1, 2, 12, 8\)"):
        built(IHAVisionModel)(torch.zeros(1, 2, 12, 8))
