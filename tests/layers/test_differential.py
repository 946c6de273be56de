"""Differential attention as a layer: its definition, its lambda, its size."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.cache import KVCache
from iha.layers.differential import DifferentialAttention
from iha.ops.differential import differential_attention_reference, lambda_from
from layers.catalogue import CASES, E, G, assert_is_its_definition, build


def definition(layer: DifferentialAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    number = lambda_from(layer.lambda_q1, layer.lambda_k1, layer.lambda_q2, layer.lambda_k2, layer.lambda_init)
    v = v.flatten(2).unflatten(2, (G // 2, -1))
    return differential_attention_reference(
        q, k, v, number, layer.norm_weight, lambda_init=layer.lambda_init, **options
    )


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("differential", definition, causal, window, masked)


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_lambda_is_the_paper_s(depth: int) -> None:
    layer = DifferentialAttention(E, 4, depth=depth, dtype=torch.float64)
    start = 0.8 - 0.6 * math.exp(-0.3 * depth)
    q1, k1, q2, k2 = (getattr(layer, f"lambda_{name}").tolist() for name in ("q1", "k1", "q2", "k2"))
    first, second = (math.exp(sum(a * b for a, b in zip(q, k, strict=True))) for q, k in ((q1, k1), (q2, k2)))
    assert layer.lambda_().item() == pytest.approx(first - second + start, rel=1e-12)


def test_is_as_large_as_multi_head() -> None:
    plain, layer = build("multihead"), build("differential")
    own = layer.num_mixing_parameters()
    assert sum(p.numel() for p in layer.parameters()) - own == sum(p.numel() for p in plain.parameters())
    caches = KVCache(), KVCache()
    x = torch.randn(1, 5, E, dtype=torch.float64)
    plain(x, cache=caches[0]), layer(x, cache=caches[1])
    assert caches[0].num_bytes == caches[1].num_bytes


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((15, 3), {}, "num_heads=3"),
        ((16, 4), {"num_kv_heads": 1}, "num_kv_heads=1"),
        ((16, 4), {"depth": -1}, "-1"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[int, int], options: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        DifferentialAttention(*arguments, **options)
