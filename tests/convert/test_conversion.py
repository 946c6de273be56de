"""Conversion: the same logits at step 0, pseudo-heads that learn, and the way back."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

import iha.convert
from iha.models import IHAForCausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 67, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.15, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
SOURCES = {
    "llama": LlamaConfig(**SIZES),
    "llama-mha-tied": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}, tie_word_embeddings=True),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama3-rope": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama-yarn-gelu": LlamaConfig(**SIZES, rope_parameters=YARN, hidden_act="gelu"),
    "llama-wide-heads": LlamaConfig(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=5),
    "mistral-global": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-sliding": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=True),
    "qwen3-sliding": Qwen3Config(**SIZES, head_dim=8, use_sliding_window=True, sliding_window=6, max_window_layers=2),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Randomly initialised checkpoints; norms and biases too, which start at one and zero otherwise."""
    directory = tmp_path_factory.mktemp("sources")
    for name, config in SOURCES.items():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(directory / name, max_shard_size="20KB" if name == "qwen3" else "5GB")
    return {name: directory / name for name in SOURCES}


def _original(path: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def _tokens(N: int = 24) -> torch.Tensor:
    return torch.randint(0, 67, (2, N), generator=torch.Generator().manual_seed(0))


def _decoded(model: PreTrainedModel, x: torch.Tensor, prompt: int = 9) -> torch.Tensor:
    """The logits of cached decoding: a prompt, then token by token."""
    out = model(x[:, :prompt], use_cache=True)
    logits = [out.logits]
    for t in range(prompt, x.shape[1]):
        out = model(x[:, t : t + 1], past_key_values=out.past_key_values)
        logits.append(out.logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(("P", "causal", "collapse"), [(2, "token", "per_head"), (3, "virtual", "full")])
@torch.no_grad()
def test_the_same_logits_at_every_position(sources: dict, name: str, P: int, causal: str, collapse: str) -> None:
    original = _original(sources[name])
    model = iha.convert.from_pretrained(sources[name], P, causal=causal, collapse=collapse)
    x = _tokens()
    expected = original(x).logits
    assert expected.std() > 0.1
    for logits in (model(x).logits, _decoded(model, x)):
        assert (logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    mask = torch.ones_like(x)
    mask[1, :6] = 0
    padded, expected = model(x, attention_mask=mask).logits, original(x, attention_mask=mask).logits
    assert (padded[1, 6:] - expected[1, 6:]).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("causal", ["token", "virtual"])
def test_pseudo_heads_learn_apart(sources: dict, name: str, causal: str) -> None:
    """Gradients of the pseudo-heads differ at step 0, and after some steps the function is another."""
    model, x = iha.convert.from_pretrained(sources[name], 2, causal=causal).train(), _tokens()
    model(x, labels=x).loss.backward()
    layer = model.model.layers[0].self_attn
    # All P copies of a key weigh the same, so alpha_v's gradients are equal at first, and R's under token causality.
    for parameter in (layer.alpha_q, layer.alpha_k) + ((layer.collapse,) if causal == "virtual" else ()):
        first, second = parameter.grad.unbind(-1)
        assert (first - second).abs().max() > 1e-3 * parameter.grad.abs().max()
    optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if "alpha" in n or "collapse" in n], lr=0.1)
    for _ in range(3):
        optimizer.step()
        optimizer.zero_grad()
        model(x, labels=x).loss.backward()
    assert not torch.allclose(layer.alpha_q[:, :, 0], layer.alpha_q[:, :, 1])
    assert not torch.allclose(layer.alpha_k[:, :, 0], layer.alpha_k[:, :, 1])


def test_chosen_layers(sources: dict) -> None:
    model = iha.convert.from_pretrained(sources["llama"], [1, 3, 2], layers=[1, 2])
    mechanisms = [(layer["mechanism"], layer["num_pseudo_heads"]) for layer in model.config.layer_schedule]
    assert mechanisms == [("multihead", 1), ("iha", 3), ("iha", 2)]
    model = iha.convert.from_pretrained(sources["llama"], 2, schedule="4:1")
    assert [layer["mechanism"] for layer in model.config.layer_schedule] == ["iha"] * 3


@pytest.mark.parametrize("name", SOURCES)
@torch.no_grad()
def test_there_and_back(sources: dict, name: str, tmp_path: Path) -> None:
    """Shard by shard to disk, loadable by the Auto class, and back to the original's very tensors."""
    iha.convert.convert(sources[name], tmp_path / "iha", 2)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "iha", dtype=torch.float32)
    assert isinstance(model, IHAForCausalLM)
    x, expected = _tokens(), _original(sources[name])(_tokens()).logits
    assert (model(x).logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    iha.convert.export(tmp_path / "iha", tmp_path / "back")
    back = _original(tmp_path / "back")
    assert type(back) is type(_original(sources[name]))
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
    plain, x = _original(tmp_path / "plain"), _tokens()
    expected = model(x).logits
    assert (expected - _original(sources[name])(x).logits).abs().max() > 0.1, "nothing was learned"
    torch.testing.assert_close(plain(x).logits, expected, rtol=0, atol=3e-5)


@torch.no_grad()
def test_what_has_learned_apart_is_not_exported(sources: dict, tmp_path: Path) -> None:
    model = iha.convert.from_pretrained(sources["llama"], 2)
    model.model.layers[1].self_attn.alpha_k[0, 1, 1] += 0.1
    model.save_pretrained(tmp_path / "iha")
    with pytest.raises(ValueError, match="layer 1: its 2 pseudo-heads have learned apart"):
        iha.convert.export(tmp_path / "iha", tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


def _broken(source: Path, tmp_path: Path, name: str = "broken") -> Path:
    return Path(shutil.copytree(source, tmp_path / name))


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_bad_sources_are_refused_before_anything_is_written(sources: dict, tmp_path: Path) -> None:
    llama = sources["llama"]

    def refused(source: Path, match: str, **options: Any) -> None:
        with pytest.raises(ValueError, match=match):
            iha.convert.convert(source, tmp_path / "out" / "model", **options)
        assert not (tmp_path / "out").exists()

    refused(tmp_path / "nowhere", "no checkpoint directory")
    unknown = _broken(llama, tmp_path, "unknown")
    _edit(unknown / "config.json", model_type="gpt2")
    refused(unknown, "cannot convert model_type 'gpt2'")
    quantised = _broken(llama, tmp_path, "quantised")
    _edit(quantised / "config.json", quantization_config={"bits": 4})
    refused(quantised, "quantised")
    dynamic = _broken(llama, tmp_path, "dynamic")
    _edit(dynamic / "config.json", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    refused(dynamic, "rope_type 'dynamic'")
    vocabulary = _broken(llama, tmp_path, "vocabulary")
    _edit(vocabulary / "config.json", vocab_size=99)
    refused(vocabulary, r"embed_tokens.weight has shape \(67, 32\).*\(99, 32\).*vocab_size")
    garbled = _broken(llama, tmp_path, "garbled")
    (garbled / "config.json").write_text("{")
    refused(garbled, "not valid JSON")
    truncated = _broken(llama, tmp_path, "truncated")
    data = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(data[: len(data) // 2])
    refused(truncated, "not a whole safetensors file")
    tensors = load_file(llama / "model.safetensors")
    for name, changed, match in [
        (
            "missing",
            {n: t for n, t in tensors.items() if "layers.1.mlp.up" not in n},
            "lacks 1 tensors.*layers.1.mlp.up",
        ),
        ("foreign", {**tensors, "vision.weight": torch.ones(2)}, "1 unknown tensors.*vision.weight"),
    ]:
        broken = _broken(llama, tmp_path, name)
        save_file(changed, broken / "model.safetensors")
        refused(broken, match)
    pickled = _broken(llama, tmp_path, "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    refused(pickled, "only safetensors")
    refused(llama, "no layer 3", layers=[3])
    refused(llama, "num_pseudo_heads", num_pseudo_heads=0)
    refused(llama, "schedule", schedule="2:1")


def test_the_destination_is_complete_or_absent(sources: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(ValueError, match="not an empty directory"):
        iha.convert.convert(sources["llama"], tmp_path / "taken")

    def fails(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("iha.convert.forward.copy_companions", fails)
    with pytest.raises(OSError, match="disk full"):
        iha.convert.convert(sources["llama"], tmp_path / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]


def test_streams_shard_by_shard(sources: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never two shards alive at once."""
    import iha.convert.checkpoint as files

    written: list[str] = []
    loaded: list[str] = []
    load = files.Checkpoint.load

    def watched(self: files.Checkpoint, shard: str) -> dict:
        assert loaded == written, f"{shard} is loaded before {loaded[-1]} is written"
        loaded.append(shard)
        return load(self, shard)

    monkeypatch.setattr(files.Checkpoint, "load", watched)
    save = save_file
    monkeypatch.setattr(
        "safetensors.torch.save_file", lambda t, path, **k: (save(t, path, **k), written.append(path.name))
    )
    iha.convert.convert(sources["qwen3"], tmp_path / "iha")
    assert len(written) > 2
