"""Strassen attention as a layer: its definition, and that positions are relative in all three of its products."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.cache import KVCache
from iha.layers.strassen import StrassenAttention
from iha.ops.strassen import strassen_attention_reference
from layers.catalogue import CASES, E, assert_is_its_definition, build


def definition(layer: StrassenAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)
    return strassen_attention_reference(q, k1, k2, v1, v2, **options)


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("strassen", definition, causal, window, masked)


def test_positions_are_relative() -> None:
    """The same tokens behind ten others that a document hides from them: other positions, the same output."""
    layer = build("strassen").requires_grad_(False)
    x, before = torch.randn(1, 6, E, dtype=torch.float64), torch.randn(1, 10, E, dtype=torch.float64)
    documents = torch.tensor([[0] * 10 + [1] * 6])
    cache = KVCache()
    layer(before, document_ids=documents[:, :10], cache=cache)
    shifted = layer(x, document_ids=documents[:, 10:], cache=cache)
    torch.testing.assert_close(shifted, layer(x), atol=1e-12, rtol=0)


def test_chunks_change_memory_alone() -> None:
    layer, x = build("strassen"), torch.randn(2, 9, E, dtype=torch.float64)
    in_threes = layer(x)
    layer.chunk = None
    torch.testing.assert_close(layer(x), in_threes, atol=1e-13, rtol=0)
    with pytest.raises(ValueError, match=r"chunk .* got -1"):
        StrassenAttention(16, 4, chunk=-1)
