"""torch.export of the model, with dynamic batch and length: what is exported once computes the same elsewhere.

Caches become inputs of an exported program through the exporters of `transformers`.
"""

import copy
from typing import Any

import pytest
import torch
from tiny import tiny_model, tokens
from torch.export import Dim
from transformers import DynamicCache, PreTrainedModel

exporter_dynamo = pytest.importorskip("transformers.exporters.exporter_dynamo")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SIZES = ((3, 5), (5, 11))  # batch and length, other than those of the export
SEEN = 6  # tokens in the cache at the export
ROUNDING: dict[str, Any] = {"rtol": 0, "atol": 5e-5}


def small(kind: str) -> PreTrainedModel:
    """Two layers, a local one and a global one where the kind has both: every layer is traced."""
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


@torch.no_grad()
def test_without_a_cache() -> None:
    model = small("iha-everywhere")

    def inputs(B: int, N: int) -> dict[str, Any]:
        mask = torch.ones(B, N, dtype=torch.long)
        mask[0, :2] = 0
        return {"input_ids": tokens(B, N), "attention_mask": mask, "use_cache": False}

    program = exported(model, inputs(2, 9))
    for B, N in SIZES:
        compare(model, program, inputs(B, N))


@torch.no_grad()
def test_with_a_dynamic_cache() -> None:
    """Made by `DynamicCache()`: every layer keeps all tokens, and how many it has seen is a size of its tensors."""
    model = small("iha")

    def inputs(B: int, seen: int) -> dict[str, Any]:
        x = tokens(B, seen + 1)
        cache = model(x[:, :seen], past_key_values=DynamicCache(), use_cache=True).past_key_values
        return {"input_ids": x[:, seen:], "past_key_values": cache, "use_cache": True}

    program = exported(model, inputs(2, SEEN))
    for B, seen in SIZES:
        compare(model, program, inputs(B, seen))
