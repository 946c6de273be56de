"""The way back: the original's very tensors, or mixing folded into the projections, or a refusal."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import iha.convert
from convert.originals import SOURCES, original, tokens
from iha.models import IHAConfig, IHAForCausalLM


@pytest.mark.parametrize("name", SOURCES)
@torch.no_grad()
def test_there_and_back(sources: dict, name: str, tmp_path: Path) -> None:
    """Shard by shard to disk, loadable by the Auto class, and back to the original's very tensors."""
    iha.convert.convert(sources[name], tmp_path / "iha", 2)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "iha", dtype=torch.float32)
    assert isinstance(model, IHAForCausalLM)
    x, expected = tokens(), original(sources[name])(tokens()).logits
    assert (model(x).logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    iha.convert.export(tmp_path / "iha", tmp_path / "back")
    back = original(tmp_path / "back")
    assert type(back) is type(original(sources[name]))
    torch.testing.assert_close(back(x).logits, expected, rtol=0, atol=0)
    assert {p.name for p in (tmp_path / "back").glob("*.safetensors*")} == {
        p.name for p in sources[name].glob("*.safetensors*")
    }


@pytest.mark.parametrize("name", ["llama", "llama-biases", "qwen2-sliding", "mistral"])
@pytest.mark.parametrize("collapse", ["per_head", "full"])
@torch.no_grad()
def test_one_pseudo_head_folds_whatever_it_learned(sources: dict, name: str, collapse: str, tmp_path: Path) -> None:
    model = iha.convert.from_pretrained(sources[name], 1, collapse=collapse)
    torch.manual_seed(5)
    for n, parameter in model.named_parameters():
        if "alpha" in n or "collapse" in n:
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "iha")
    iha.convert.export(tmp_path / "iha", tmp_path / "plain")
    plain, x = original(tmp_path / "plain"), tokens()
    expected = model(x).logits
    assert (expected - original(sources[name])(x).logits).abs().max() > 0.1, "nothing was learned"
    torch.testing.assert_close(plain(x).logits, expected, rtol=0, atol=3e-5)


@torch.no_grad()
def test_what_has_learned_apart_is_not_exported(sources: dict, tmp_path: Path) -> None:
    model = iha.convert.from_pretrained(sources["llama"], 2)
    model.model.layers[1].self_attn.alpha_k[0, 1, 1] += 0.1
    model.save_pretrained(tmp_path / "iha")
    with pytest.raises(ValueError, match="layer 1: its 2 pseudo-heads have learned apart"):
        iha.convert.export(tmp_path / "iha", tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


@torch.no_grad()
def test_mixed_heads_are_not_exported(sources: dict, tmp_path: Path) -> None:
    config = iha.convert.from_pretrained(sources["llama"], 2).config.to_dict()
    fields = (
        "attention",
        "layer_schedule",
        "layer_types",
        "sliding_window",
        "converted_from",
        "mixing_init",
        "collapse",
    )
    config = {name: value for name, value in config.items() if name not in fields}
    mixed = config["num_attention_heads"] * 2
    options = {"num_mixed_heads": mixed, "collapse": "full", "mixing_init": "random", "window": 0, "global_every": None}
    IHAForCausalLM(IHAConfig(**{**config, **options})).save_pretrained(tmp_path / "iha")
    with pytest.raises(ValueError, match=f"layer 0: it mixes .* heads into {mixed}"):
        iha.convert.export(tmp_path / "iha", tmp_path / "plain")


@torch.no_grad()
def test_only_iha_checkpoints_come_back(sources: dict, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no IHA checkpoint: model_type 'llama'"):
        iha.convert.export(sources["llama"], tmp_path / "plain")
    config = iha.convert.from_pretrained(sources["llama"], 1).config
    config.layer_schedule = [{"mechanism": "talking_heads", "window": None, "num_pseudo_heads": 1}] * 3
    IHAForCausalLM(config).save_pretrained(tmp_path / "iha")
    with pytest.raises(ValueError, match="layer 0 is talking_heads, which no plain architecture computes"):
        iha.convert.export(tmp_path / "iha", tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


@pytest.mark.parametrize("fields", [{"attention_gate": "headwise"}, {"exclusive_attention": True}])
def test_nothing_is_folded_through_a_gate_or_the_own_value(sources: dict, fields: dict, tmp_path: Path) -> None:
    config = iha.convert.from_pretrained(sources["llama"], 1).config
    config.update(fields)
    IHAForCausalLM(config).save_pretrained(tmp_path / "iha")
    with pytest.raises(ValueError, match=next(iter(fields))):
        iha.convert.export(tmp_path / "iha", tmp_path / "plain")
    assert not (tmp_path / "plain").exists()
