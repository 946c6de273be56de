"""Loading as `transformers` does, and strictly."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_model, tokens
from transformers import AutoModelForCausalLM

from iha.models import IHAForCausalLM, IHAModel, load_strict
from iha.models.loading import read_config


def test_from_pretrained_reports_what_is_missing(tmp_path: Path) -> None:
    """As every other model: a base checkpoint in a head loads, with the head in the loading info."""
    tiny_model().model.save_pretrained(tmp_path)
    model, info = IHAForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert set(info["missing_keys"]) == {"lm_head.weight"}
    assert not info["mismatched_keys"]
    torch.testing.assert_close(
        model.model.layers[0].self_attn.alpha_q, IHAModel.from_pretrained(tmp_path).layers[0].self_attn.alpha_q
    )
    with pytest.raises(ValueError, match=r"lacks 1 tensors, among them lm_head.weight"):
        load_strict(tmp_path, IHAForCausalLM)


def test_a_whole_checkpoint_loads_strictly(tmp_path: Path) -> None:
    model, x = tiny_model(), tokens(1, 5)
    model.save_pretrained(tmp_path)
    for loaded in (load_strict(tmp_path), load_strict(tmp_path, IHAForCausalLM, dtype=torch.float32)):
        assert type(loaded) is IHAForCausalLM
        torch.testing.assert_close(loaded.eval()(x).logits, model(x).logits, rtol=0, atol=0)


def test_broken_checkpoints_are_refused(tmp_path: Path) -> None:
    """An error with a name in it, never a model with random weights."""
    tiny_model().save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    data, tensors, fields = weights.read_bytes(), load_file(weights), json.loads(config.read_text())

    def refused(match: str, error: type[Exception] | tuple = ValueError) -> None:
        with pytest.raises(error, match=match):
            load_strict(tmp_path)
        weights.write_bytes(data)
        config.write_text(json.dumps(fields))

    weights.write_bytes(data[: len(data) // 2])
    refused("safetensors")
    save_file({"foreign.weight": torch.ones(3)}, weights, metadata={"format": "pt"})
    refused(r"IHAForCausalLM: it lacks \d+ tensors")
    some = {n: t for n, t in tensors.items() if "layers.0.self_attn.alpha_q" not in n}
    save_file(some, weights, metadata={"format": "pt"})
    refused(r"it lacks 1 tensors.*layers.0.self_attn.alpha_q")
    config.write_text(json.dumps({**fields, "vocab_size": 99}))
    refused(r"(embed_tokens|lm_head).weight has shape \(61, 32\), not \(99, 32\) \(vocab_size\?\)")
    config.write_text("{")
    refused("config", (ValueError, OSError))
    config.write_text(json.dumps({**fields, "causal": "backwards"}))
    refused("causal")


def test_pickles_are_not_read(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no safetensors file.*save_pretrained"):
        load_strict(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path) is not None  # transformers itself would


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not readable JSON"), ("{", "not readable JSON"), ("[]", "model_type is None"),
        ('{"model_type": "llama"}', "model_type is 'llama': run `iha convert`"),
        ('{"model_type": "iha", "hidden_size": -1}', "hidden_size must be at least 1, got -1"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_none_names_its_file(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=f"config.json.*{message}"):
        read_config(tmp_path)
