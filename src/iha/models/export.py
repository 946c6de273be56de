"""Caches that become inputs of an exported program without fixing how many tokens they have seen.

Layers of `transformers` that slide count their tokens in a Python number, and static layers hold their batch size in
one. The exporters of `transformers` take such numbers for constants, so the program runs for these numbers alone, with
Mistral too. Here they are inputs, as the tensors are.
"""

from typing import Any

import torch
from torch import Tensor
from torch.export import Dim
from torch.utils import _pytree as pytree
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

_LAYERS = {
    kind.__name__: kind for kind in (DynamicLayer, DynamicSlidingWindowLayer, StaticLayer, StaticSlidingWindowLayer)
}
_NUMBERS = ("cumulative_length", "cumulative_length_int", "batch_size")  # tokens seen, and sequences


class _Exported(Cache):
    def dynamic_shapes(self) -> list[Any]:
        """For `dynamic_shapes` of `torch.export.export`: batch and length of every layer.

        A size on which the program does depend is fixed by torch.export itself, e.g. that of a window that is full.
        """
        return [_shape(leaf) for leaf in _flatten(self)[0]]


class ExportDynamicCache(_Exported, DynamicCache):
    """`DynamicCache`, of which a program can be exported that runs for any number of tokens seen.

    For a model with windows: either for caches whose windows are full, or for those whose windows are not, like the one
    that was exported. A cache of the other kind is refused when the program is called.
    """


class ExportStaticCache(_Exported, StaticCache):
    """`StaticCache`, likewise, for any batch."""


def _shape(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return Dim.AUTO
    return {0: Dim.AUTO, 2: Dim.AUTO} if leaf.dim() == 4 else {}


def _flatten(cache: Cache) -> tuple[list[Any], dict[str, Any]]:
    """Tensors and numbers that change from call to call, and everything else as plain data."""
    if cache.offloading:
        raise ValueError("a cache that is offloaded cannot be an input of an exported program")
    leaves: list[Any] = []
    layers = []
    for index, layer in enumerate(cache.layers):
        if not isinstance(layer, CacheLayerMixin) or type(layer) not in _LAYERS.values():
            raise ValueError(f"layer {index} of the cache is a {type(layer).__name__}, which cannot be exported")
        if not layer.is_initialized:
            raise ValueError(f"layer {index} of the cache has seen no token yet: its shapes are not known")
        fields = dict(sorted(vars(layer).items()))
        inputs = {name: value for name, value in fields.items() if isinstance(value, Tensor) or name in _NUMBERS}
        fixed = {name: _plain(value) for name, value in fields.items() if name not in inputs}
        layers.append({"kind": type(layer).__name__, "inputs": list(inputs), "fixed": fixed})
        leaves += inputs.values()
    return leaves, {"layers": layers}


def _unflatten(kind: type[Cache], leaves: Any, context: dict[str, Any]) -> Cache:
    left = iter(leaves)
    layers = []
    for description in context["layers"]:
        layer: CacheLayerMixin = object.__new__(_LAYERS[description["kind"]])
        fixed = {name: _from_plain(value) for name, value in description["fixed"].items()}
        vars(layer).update(fixed | {name: next(left) for name in description["inputs"]})
        layers.append(layer)
    cache = object.__new__(kind)
    Cache.__init__(cache, layers=layers)  # type: ignore[arg-type]
    return cache


def _plain(value: Any) -> Any:
    """As JSON has it: torch.export.save writes it."""
    return {"torch": str(value).removeprefix("torch.")} if isinstance(value, torch.device | torch.dtype) else value


def _from_plain(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = getattr(torch, value["torch"], None)
    return found if isinstance(found, torch.dtype) else torch.device(value["torch"])


def _register(kind: type[Cache]) -> None:
    def with_keys(cache: Cache) -> tuple[list[tuple[Any, Any]], Any]:
        leaves, context = _flatten(cache)
        return [(pytree.SequenceKey(index), leaf) for index, leaf in enumerate(leaves)], context

    pytree.register_pytree_node(
        kind, _flatten, lambda leaves, context: _unflatten(kind, leaves, context),
        serialized_type_name=f"iha.{kind.__name__}", flatten_with_keys_fn=with_keys,
    )  # fmt: skip


_register(ExportDynamicCache)
_register(ExportStaticCache)
