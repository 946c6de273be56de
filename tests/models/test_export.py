"""torch.export and ONNX of the model, with dynamic batch and length: what is exported once computes the same elsewhere.

Caches become inputs of an exported program through the exporters of `transformers`, or as those of `iha.models.export`.
"""

import copy
from typing import Any

import pytest
import torch
from tiny import tiny_model, tokens
from torch.export import Dim
from torch.utils import _pytree as pytree
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    StaticCache,
)
from transformers.cache_utils import DynamicLayer

from iha.models.export import ExportDynamicCache, ExportStaticCache

exporter_dynamo = pytest.importorskip("transformers.exporters.exporter_dynamo")
pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = ((3, 5), (5, 11))  # batch and length, other than those of the export
SEEN = 6  # tokens in the cache at the export
ROUNDING: dict[str, Any] = {"rtol": 0, "atol": 5e-5}


def small(kind: str) -> PreTrainedModel:
    """Two layers, a local one and a global one where the kind has both: every layer is traced."""
    if kind == "llama":
        torch.manual_seed(0)
        fields = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 48}
        return LlamaForCausalLM(LlamaConfig(vocab_size=61, num_hidden_layers=2, **fields)).eval()
    if kind == "mistral":  # a window in every layer
        torch.manual_seed(0)
        fields = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 48}
        return MistralForCausalLM(MistralConfig(vocab_size=61, num_hidden_layers=2, sliding_window=5, **fields)).eval()
    own = {"iha": {"global_every": 2}, "iha-everywhere": {"num_pseudo_heads": 2}}.get(kind, {})
    return tiny_model(kind, num_hidden_layers=2, **own)


def exported(model: PreTrainedModel, inputs: dict[str, Any]) -> Any:
    """With dynamic batch and length of every input, cached keys and values included."""
    exporter_dynamo.register_cache_pytrees_for_model(model)
    shapes = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            shapes[name] = {0: Dim.AUTO, 1: Dim.AUTO if value.shape[1] > 1 else None}
        elif name == "past_key_values":
            leaves = [] if hasattr(value, "dynamic_shapes") else pytree.tree_leaves(value)
            plain = [{0: Dim.AUTO, 2: Dim.AUTO} if leaf.dim() == 4 else {} for leaf in leaves]
            shapes[name] = plain or value.dynamic_shapes()
    config = exporter_dynamo.DynamoConfig(dynamic=True, dynamic_shapes=shapes)
    program = exporter_dynamo.DynamoExporter().export(model, dict(inputs), config)
    assert not [n for n in program.graph.nodes if "iha" in str(n.target)], "it would need this package to run"
    return program.module()


def without_windows(config: Any) -> Any:
    """For a cache whose every layer keeps all tokens."""
    plain = copy.deepcopy(config)
    plain.layer_types, plain.sliding_window = ["full_attention"] * plain.num_hidden_layers, None
    return plain


def results(outputs: Any) -> list[torch.Tensor]:
    cache = outputs.past_key_values
    layers = [] if cache is None else [t for layer in cache.layers for t in (layer.keys, layer.values)]
    return [outputs.logits, *layers]


def compare(model: PreTrainedModel, program: Any, inputs: dict[str, Any]) -> None:
    given = {name: value for name, value in inputs.items() if name != "use_cache"}
    want = results(model(**copy.deepcopy(inputs)))
    got = results(program(**copy.deepcopy(given)))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, **ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iha", "iha-everywhere", "global_local", "talking_heads", "differential"])
@torch.no_grad()
def test_without_a_cache(kind: str) -> None:
    model = small(kind)

    def inputs(B: int, N: int) -> dict[str, Any]:
        mask = torch.ones(B, N, dtype=torch.long)
        mask[0, :2] = 0
        return {"input_ids": tokens(B, N), "attention_mask": mask, "use_cache": False}

    program = exported(model, inputs(2, 9))
    for B, N in SIZES:
        compare(model, program, inputs(B, N))


@pytest.mark.slow
@pytest.mark.parametrize("num_new", [1, 4])
@pytest.mark.parametrize("kind", ["iha", "iha-everywhere", "talking_heads"])
@torch.no_grad()
def test_with_a_dynamic_cache(kind: str, num_new: int) -> None:
    """Made by `DynamicCache()`: every layer keeps all tokens, and how many it has seen is a size of its tensors."""
    model = small(kind)

    def inputs(B: int, seen: int) -> dict[str, Any]:
        x = tokens(B, seen + num_new)
        cache = model(x[:, :seen], past_key_values=DynamicCache(), use_cache=True).past_key_values
        return {"input_ids": x[:, seen:], "past_key_values": cache, "use_cache": True}

    program = exported(model, inputs(2, SEEN))
    for B, seen in SIZES:
        compare(model, program, inputs(B, seen))


def cached(model: PreTrainedModel, cache: Any, B: int, seen: int, num_new: int = 1) -> dict[str, Any]:
    """The inputs of a call with new tokens after `seen` cached ones."""
    x = tokens(B, seen + num_new)
    model(x[:, :seen], past_key_values=cache, use_cache=True)
    return {"input_ids": x[:, seen:], "past_key_values": cache, "use_cache": True}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iha", "mistral"])
@torch.no_grad()
def test_with_sliding_layers_as_transformers_exports_them(kind: str) -> None:
    """They count the tokens they have seen in a number, so the program is for that many; it does not run for others.
    So it is with Mistral, and so `iha.models.export` has caches of its own."""
    model = small(kind)
    program = exported(model, cached(model, DynamicCache(config=model.config), 2, SEEN))
    compare(model, program, cached(model, DynamicCache(config=model.config), 5, SEEN))
    with pytest.raises(ValueError, match="tree spec"):
        compare(model, program, cached(model, DynamicCache(config=model.config), 2, SEEN + 1))


def exportable(model: PreTrainedModel, kind: str) -> Any:
    if kind == "dynamic":
        return ExportDynamicCache(config=model.config)
    return ExportStaticCache(config=model.config, max_cache_len=24)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cache", "num_new"),
    [("iha", "dynamic", 1), ("iha", "dynamic", 4), ("iha", "static", 1), ("iha", "static", 4),
     ("mistral", "dynamic", 1), ("mistral", "static", 1)],
)  # fmt: skip
@torch.no_grad()
def test_with_sliding_layers_for_any_batch_and_length(kind: str, cache: str, num_new: int) -> None:
    """One program for every cache whose windows are full."""
    model = small(kind)
    W = model.config.sliding_window
    program = exported(model, cached(model, exportable(model, cache), 2, W + 3, num_new))
    for B, seen in ((4, W), (3, W + 1), (2, W + 10), (1, W + 3)):
        compare(model, program, cached(model, exportable(model, cache), B, seen, num_new))
    with pytest.raises(AssertionError, match=rf"Guard failed: past_key_values\[\d\] >= {W}"):
        compare(model, program, cached(model, exportable(model, cache), 2, W - 1, num_new))


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_with_windows_that_are_not_full(cache: str) -> None:
    model = tiny_model("iha", num_hidden_layers=2, global_every=2, window=8)
    W = model.config.sliding_window
    program = exported(model, cached(model, exportable(model, cache), 2, W - 3))
    for B, seen in ((3, 1), (4, 2), (2, W - 4)):
        compare(model, program, cached(model, exportable(model, cache), B, seen))
    with pytest.raises(AssertionError, match=rf"Guard failed: past_key_values\[\d\] <= {W - 1}"):
        compare(model, program, cached(model, exportable(model, cache), 2, W))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_a_cache_is_taken_apart_and_put_together(cache: str) -> None:
    """By number of tokens and batch, the parts differ and the plan by which they are put together does not."""
    model = small("iha")
    made = cached(model, exportable(model, cache), 2, 8)
    leaves, plan = pytree.tree_flatten(made["past_key_values"])
    assert all(type(leaf) is int or isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert 8 in leaves
    assert len(made["past_key_values"].dynamic_shapes()) == len(leaves)
    other = pytree.tree_flatten(cached(model, exportable(model, cache), 3, 9)["past_key_values"])[1]
    assert other == plan
    again = pytree.tree_unflatten(leaves, pytree.treespec_loads(pytree.treespec_dumps(plan)))  # as a file has it
    assert type(again) is type(made["past_key_values"])
    for one, wanted in zip(again.layers, made["past_key_values"].layers, strict=True):
        assert vars(one) == vars(wanted)  # tensors are the same objects
    x = made["input_ids"]
    want = model(x, past_key_values=copy.deepcopy(made["past_key_values"])).logits
    assert torch.equal(model(x, past_key_values=again).logits, want)


class Foreign(DynamicLayer):
    """Of somebody else: what it counts is not known."""


@torch.no_grad()
def test_caches_that_cannot_be_inputs_are_refused() -> None:
    model = small("iha")
    with pytest.raises(ValueError, match="layer 0 of the cache has seen no token yet"):
        pytree.tree_flatten(ExportDynamicCache(config=model.config))
    cache = exportable(model, "dynamic")
    cached(model, cache, 2, 8)
    cache.layers[1] = Foreign()
    with pytest.raises(ValueError, match="layer 1 of the cache is a Foreign, which cannot be exported"):
        cache.dynamic_shapes()
    cache.offloading = True
    with pytest.raises(ValueError, match="a cache that is offloaded cannot be an input"):
        cache.dynamic_shapes()


@pytest.mark.slow
@pytest.mark.parametrize("num_new", [1, 4])
@pytest.mark.parametrize("kind", ["iha", "talking_heads", "llama"])
@torch.no_grad()
def test_with_a_static_cache(kind: str, num_new: int) -> None:
    """How much of it is filled is data. Its batch is not: `StaticCache` holds it as a number, with Llama too."""
    model = small(kind)

    def inputs(B: int, seen: int) -> dict[str, Any]:
        x = tokens(B, seen + num_new)
        cache = StaticCache(config=without_windows(model.config), max_cache_len=16)
        model(x[:, :seen], past_key_values=cache, use_cache=True)
        return {"input_ids": x[:, seen:], "past_key_values": cache, "use_cache": True}

    program = exported(model, inputs(2, SEEN))
    for seen in (3, 8):
        compare(model, program, inputs(2, seen))
    with pytest.raises(ValueError, match="tree spec"):
        compare(model, program, inputs(3, SEEN))


@pytest.mark.slow
@torch.no_grad()
def test_onnx_of_a_whole_sequence() -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = small("iha")
    x = {"input_ids": tokens(2, 9), "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    sizes = {0: Dim("B", min=1, max=64), 1: Dim("N", min=2, max=64)}
    program = torch.onnx.export(
        Logits(model), (), kwargs=x, dynamo=True, dynamic_shapes=dict.fromkeys(x, sizes), verbose=False
    )
    assert program is not None
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for B, N in ((2, 9), *SIZES):
        mask = torch.ones(B, N, dtype=torch.long)
        mask[0, :2] = 0
        given = {"input_ids": tokens(B, N), "attention_mask": mask}
        (got,) = session.run(None, {name: t.numpy() for name, t in given.items()})
        torch.testing.assert_close(torch.from_numpy(got), model(**given, use_cache=False).logits, **ROUNDING)


class Logits(torch.nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids, attention_mask=attention_mask, use_cache=False).logits


@pytest.mark.slow
@torch.no_grad()
def test_onnx_of_a_decoding_step() -> None:
    exporter_onnx = pytest.importorskip("transformers.exporters.exporter_onnx")
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model, x = small("iha"), tokens(2, SEEN + 1)
    cache = model(x[:, :SEEN], past_key_values=DynamicCache(), use_cache=True).past_key_values
    inputs = {"input_ids": x[:, SEEN:], "past_key_values": cache}
    want = model(**copy.deepcopy(inputs), use_cache=True).logits
    config = exporter_onnx.OnnxConfig(dynamic=False)
    program = exporter_onnx.OnnxExporter().export(model, copy.deepcopy(inputs), config)
    leaves = [t for layer in cache.layers for t in (layer.keys, layer.values)]
    by_shape = {tuple(t.shape): t for t in leaves}
    assert len(by_shape) == 1
    names = [value.name for value in program.model.graph.inputs]
    given = dict(zip(names, [inputs["input_ids"], *leaves], strict=True))
    outputs = program(**given)
    torch.testing.assert_close(outputs[0], want, **ROUNDING)
