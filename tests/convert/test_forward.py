"""Conversion: the same logits at step 0, pseudo-heads that learn, and nothing written for a bad source."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import iha.convert
from convert.originals import SIZES, SOURCES, decoded, original, tokens
from iha.models import IHAConfig, IHAForCausalLM


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(("P", "causal", "collapse"), [(2, "token", "per_head"), (3, "virtual", "full")])
@torch.no_grad()
def test_the_same_logits_at_every_position(sources: dict, name: str, P: int, causal: str, collapse: str) -> None:
    plain = original(sources[name])
    model = iha.convert.from_pretrained(sources[name], P, causal=causal, collapse=collapse)
    x = tokens()
    expected = plain(x).logits
    assert expected.std() > 0.1
    for logits in (model(x).logits, decoded(model, x)):
        assert (logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    mask = torch.ones_like(x)
    mask[1, :6] = 0
    padded, expected = model(x, attention_mask=mask).logits, plain(x, attention_mask=mask).logits
    assert (padded[1, 6:] - expected[1, 6:]).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("P", "P_k"), [(1, 3), (3, 2)])
@torch.no_grad()
def test_the_same_logits_with_another_number_of_pseudo_keys(sources: dict, P: int, P_k: int, tmp_path: Path) -> None:
    source, x = sources["llama"], tokens()
    model, expected = iha.convert.from_pretrained(source, P, num_pseudo_keys=P_k), original(source)(x).logits
    assert model.model.layers[0].self_attn.visibility.per_token == (P, P_k)
    for logits in (model(x).logits, decoded(model, x)):
        assert (logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    model.save_pretrained(tmp_path / "iha")
    iha.convert.export(tmp_path / "iha", tmp_path / "back")
    torch.testing.assert_close(original(tmp_path / "back")(x).logits, expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match=f"causal='virtual' .* got {P} and {P_k}"):
        iha.convert.from_pretrained(source, P, num_pseudo_keys=P_k, causal="virtual")


@pytest.mark.parametrize(("P", "causal", "collapse"), [(2, "token", "per_head"), (3, "virtual", "full")])
def test_routed_pseudo_queries_are_exact_and_reached_by_training(
    sources: dict, P: int, causal: str, collapse: str
) -> None:
    plain = original(sources["iha-global"])
    options: dict = {"causal": causal, "collapse": collapse, "routed": True}
    model, x = iha.convert.from_pretrained(sources["iha-global"], P, **options), tokens()
    with torch.no_grad():
        assert (model(x).logits - plain(x).logits).abs().max() <= 1e-5
    layer = model.model.layers[0].self_attn
    assert layer.alpha_q[:, 1, 0].argmax() == 2  # the query of the next head
    model(x, labels=x).loss.backward()
    H = layer.num_heads
    behind = layer.collapse.grad.view(H, -1, P)[:, :, :-1]  # where R is zero
    assert behind.abs().max() > 1e-6
    assert layer.alpha_q.grad[:, :, :-1].abs().max() == 0  # until R has moved


def test_only_multi_head_attention_becomes_iha(tmp_path: Path) -> None:
    IHAForCausalLM(IHAConfig(**SIZES, attention="differential")).save_pretrained(tmp_path / "source")
    with pytest.raises(ValueError, match="cannot convert layers of differential"):
        iha.convert.from_pretrained(tmp_path / "source", 2)


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("causal", ["token", "virtual"])
def test_pseudo_heads_learn_apart(sources: dict, name: str, causal: str) -> None:
    """Gradients of the pseudo-heads differ at step 0, and after some steps the function is another."""
    model, x = iha.convert.from_pretrained(sources[name], 2, causal=causal).train(), tokens()
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


@pytest.mark.parametrize("gate", [None, "headwise", "elementwise"])
@torch.no_grad()
def test_gates_and_own_values_are_carried_over(gate: str | None, tmp_path: Path) -> None:
    """The own value is taken before mixing, so it is still the original's."""
    torch.manual_seed(3)
    config = IHAConfig(**SIZES, attention="global", attention_gate=gate, exclusive_attention=True)
    plain = IHAForCausalLM(config).eval()
    plain.save_pretrained(tmp_path / "plain")
    model = iha.convert.from_pretrained(tmp_path / "plain", 2)
    assert all(layer.self_attn.num_pseudo_heads == 2 for layer in model.model.layers)
    torch.testing.assert_close(model(tokens()).logits, plain(tokens()).logits, rtol=0, atol=1e-5)
    without = IHAConfig(**{**config.to_dict(), "exclusive_attention": False})
    assert (plain(tokens()).logits - loaded_into(without, plain)(tokens()).logits).abs().max() > 1e-2


def loaded_into(config: IHAConfig, model: IHAForCausalLM) -> IHAForCausalLM:
    other = IHAForCausalLM(config).eval()
    other.load_state_dict(model.state_dict())
    return other
