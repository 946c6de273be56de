"""torch.export and ONNX of the model, with dynamic batch and length: what is exported once computes the same elsewhere.

Caches become inputs of an exported program through the exporters of `transformers`.
"""

import copy
from typing import Any

import pytest
import torch
from tiny import tiny_model, tokens
from torch.export import Dim
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedModel, StaticCache

exporter_dynamo = pytest.importorskip("transformers.exporters.exporter_dynamo")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SIZES = ((3, 5), (5, 11))  # batch and length, other than those of the export
SEEN = 6  # tokens in the cache at the export
ROUNDING: dict[str, Any] = {"rtol": 0, "atol": 5e-5}


def small(kind: str) -> PreTrainedModel:
    """Two layers, a local one and a global one where the kind has both: every layer is traced."""
    if kind == "llama":
        torch.manual_seed(0)
        fields = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 48}
        return LlamaForCausalLM(LlamaConfig(vocab_size=61, num_hidden_layers=2, **fields)).eval()
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
            leaves = torch.utils._pytree.tree_leaves(value)
            shapes[name] = [{0: Dim.AUTO, 2: Dim.AUTO} if leaf.dim() == 4 else {} for leaf in leaves]
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


@torch.no_grad()
def test_with_sliding_layers() -> None:
    """They count the tokens they have seen in a number, so the program is for that many; it does not run for others."""
    model = small("iha")

    def inputs(B: int, seen: int) -> dict[str, Any]:
        x = tokens(B, seen + 1)
        cache = model(x[:, :seen], use_cache=True).past_key_values
        return {"input_ids": x[:, seen:], "past_key_values": cache, "use_cache": True}

    program = exported(model, inputs(2, SEEN))
    compare(model, program, inputs(5, SEEN))
    with pytest.raises(ValueError, match="tree spec"):
        compare(model, program, inputs(2, SEEN + 1))


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
