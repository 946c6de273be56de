"""Hostile checkpoints: nothing outside their directory is read, and nothing but ValueError comes out."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import iha.convert
import tiny_checkpoint as tiny
from iha.convert.checkpoint import INDEX, open_checkpoint


def refused(source: Path, match: str = "", **options: Any) -> str:
    """Converting raises ValueError, and the directory around the source stays as it was."""
    before = tiny.contents(source.parent)
    with pytest.raises(ValueError, match=match) as error:
        iha.convert.convert(source, source.parent / "converted", **options)
    assert tiny.contents(source.parent) == before
    assert not (source.parent / "converted").exists()
    return str(error.value)


def test_an_honest_one_is_converted(tmp_path: Path) -> None:
    for write in (tiny.write, tiny.write_sharded):
        source = write(tmp_path / write.__name__)
        iha.convert.convert(source, tmp_path / f"{write.__name__}-iha")
        assert (tmp_path / f"{write.__name__}-iha" / "tokenizer_config.json").exists()


@pytest.mark.parametrize(
    "name",
    ["../victim/model.safetensors", "/{tmp}/victim/model.safetensors", "sub/model.safetensors", "..", ".", "",
     "./model.safetensors", "model.safetensors\x00", "..\\victim\\model.safetensors", "config.json",
     ".hidden.safetensors", 3, None, ["model.safetensors"], {"a": 1}],
)  # fmt: skip
def test_shards_are_plain_names_inside(tmp_path: Path, name: object) -> None:
    tiny.write(tmp_path / "victim")
    name = name.replace("{tmp}", str(tmp_path)) if isinstance(name, str) else name
    source = tiny.write_sharded(tmp_path / "source", dict.fromkeys(tiny.tensors(), name))
    refused(source, "plain .safetensors file names")


@pytest.mark.parametrize("weight_map", [[], "model.safetensors", 5, [["a", "b"]]])
def test_an_index_without_a_map(tmp_path: Path, weight_map: object) -> None:
    refused(tiny.write_sharded(tmp_path / "source", weight_map), "no weight_map")


@pytest.mark.parametrize("text", ["[]", "{", "\xff", '{"weight_map": NaN}', "[" * 100_000, ""])
def test_an_index_that_is_no_object(tmp_path: Path, text: str) -> None:
    source = tiny.write_sharded(tmp_path / "source")
    (source / INDEX).write_text(text, encoding="latin-1")
    refused(source, INDEX)


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    source = tiny.write_sharded(tmp_path / "source")
    twice = {"model.norm.weight": torch.ones(tiny.E), "lm_head.weight": torch.ones(tiny.V, tiny.E)}
    shard = next(source.glob("*1-of-00002.safetensors"))
    save_file(
        {**dict(list(tiny.tensors().items())[:5]), **twice, "model.layers.1.mlp.down_proj.weight": torch.ones(1)}, shard
    )
    refused(source, "is in two shards")


def test_weights_must_be_floating(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "source")
    save_file({n: t.to(torch.int8) for n, t in tiny.tensors().items()}, source / "model.safetensors")
    refused(source, "I8")


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model.safetensors", "README.md"])
def test_links_out_of_the_directory_are_not_followed(tmp_path: Path, name: str) -> None:
    """A link to a file of the system would be copied into what people publish."""
    source = tiny.write(tmp_path / "source")
    outside = tiny.write(tmp_path / "outside")
    (outside / "README.md").write_text("secret")
    (outside / "tokenizer.json").write_text('{"secret": 1}')
    (source / name).unlink(missing_ok=True)
    (source / name).symlink_to(outside / name)
    refused(source, "outside the checkpoint")


@pytest.mark.parametrize("kind", ["link to itself", "link to nothing", "directory", "pipe"])
def test_a_shard_that_is_no_file(tmp_path: Path, kind: str) -> None:
    source = tiny.write_sharded(tmp_path / "source")
    shard = next(source.glob("*1-of-00002.safetensors"))
    shard.unlink()
    if kind.startswith("link"):
        shard.symlink_to(shard.name if kind == "link to itself" else "nothing")
    elif kind == "directory":
        shard.mkdir()
    else:
        os.mkfifo(shard)
    with pytest.raises(ValueError, match=f"{shard.name} is missing"):
        iha.convert.convert(source, tmp_path / "iha")
    assert not (tmp_path / "iha").exists()


def test_links_that_stay_inside_are(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "source")
    (source / "chat_template.jinja").symlink_to("tokenizer_config.json")
    iha.convert.convert(source, tmp_path / "iha")
    copied = tmp_path / "iha" / "chat_template.jinja"
    assert copied.read_text() == "{}"
    assert not copied.is_symlink()


def test_the_cache_of_the_hub_is_all_links(tmp_path: Path) -> None:
    """models--a--b/snapshots/<commit>/file links to models--a--b/blobs/<hash>."""
    blobs = tiny.write(tmp_path / "models--a--b" / "blobs")
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(os.path.relpath(path, snapshot))
    iha.convert.convert(snapshot, tmp_path / "iha")
    assert (tmp_path / "iha" / "tokenizer_config.json").read_text() == "{}"
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (snapshot / "notes.txt").symlink_to(secret)
    with pytest.raises(ValueError, match="outside the checkpoint"):
        open_checkpoint(snapshot)


def test_directories_and_pipes_beside_the_weights_are_left_alone(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "source")
    (source / "onnx").mkdir()
    os.mkfifo(source / "pipe.txt")
    iha.convert.convert(source, tmp_path / "iha")
    assert not (tmp_path / "iha" / "pipe.txt").exists()


@pytest.mark.parametrize("layers", [100_000, 10**30, 0, -1, 1.5, "2", None, True])
def test_depth_is_checked_before_anything_is_built(tmp_path: Path, layers: object) -> None:
    source = tiny.write(tmp_path / "source", {**tiny.CONFIG, "num_hidden_layers": layers})
    refused(source, "layers, the checkpoint has")


def test_more_pseudo_heads_than_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iha.records.host.available_bytes", lambda: 1000)
    refused(tiny.write(tmp_path / "source"), "pseudo-heads needs about", num_pseudo_heads=1000)


def test_more_pseudo_heads_than_any_layer_has(tmp_path: Path) -> None:
    refused(tiny.write(tmp_path / "source"), "num_pseudo_heads must be at most 1024", num_pseudo_heads=10**12)


names = st.one_of(
    st.sampled_from(["../victim/model.safetensors", "model.safetensors", "a/../b.safetensors"]),
    st.text(alphabet="./\\ab\0", max_size=6).map(lambda text: text + "model.safetensors"),
    st.text(max_size=8), st.integers(), st.none(), st.lists(st.text(max_size=3), max_size=2),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(names, min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_no_index_reaches_outside(shards: list[object], seed: int) -> None:
    """Whatever an index says, the neighbour of the checkpoint stays as it was and nothing but ValueError comes out."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        victim = tiny.contents(tiny.write(root / "victim"))
        order = torch.randperm(len(tiny.tensors()), generator=torch.Generator().manual_seed(seed)).tolist()
        weight_map = {name: shards[order[i] % len(shards)] for i, name in enumerate(tiny.tensors())}
        source = tiny.write_sharded(root / "source", weight_map)
        try:
            iha.convert.convert(source, root / "iha")
        except ValueError:
            assert not (root / "iha").exists()
        assert tiny.contents(root / "victim") == victim
        assert {path.name for path in root.iterdir()} <= {"victim", "source", "iha"}


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 70), st.integers(-(10**30), 10**30),
        st.floats(), st.text(max_size=6), st.sampled_from(["silu", "linear", "yarn"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
fields = [*tiny.CONFIG, "head_dim", "attention_bias", "attention_dropout", "mlp_bias", "rope_scaling", "rope_theta",
          "sliding_window", "layer_types", "use_cache", "torch_dtype", "quantization_config", "pretraining_tp",
          "auto_map", "id2label", "num_labels", "pad_token_id", "self", "kwargs", "_attn_implementation"]  # fmt: skip


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from(fields), values, min_size=1, max_size=3),
    st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]),
)
def test_no_configuration_does_anything_but_convert_or_be_refused(changes: dict[str, Any], model_type: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        source = tiny.write(
            root / "source", {**tiny.CONFIG, "model_type": model_type, "architectures": None, **changes}
        )
        try:
            iha.convert.convert(source, root / "iha")
        except ValueError:
            assert [path.name for path in root.iterdir()] == ["source"]
            return
        assert json.loads((root / "iha" / "config.json").read_text())["model_type"] == "iha"
