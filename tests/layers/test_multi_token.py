"""Multi-token attention as a layer: its definition, its start, and that it cannot be cached."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.cache import KVCache
from iha.layers.multi_token import MultiTokenAttention
from iha.ops.multi_token import group_norm, multi_token_attention_reference
from layers.catalogue import CASES, E, H, assert_is_its_definition, assert_starts_as_multihead


def definition(layer: MultiTokenAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    out = multi_token_attention_reference(q, k, v, layer.key_query_kernel, layer.head_kernel, **options)
    return group_norm(out, layer.norm_weight, layer.lambda_init)


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("multi_token", definition, causal, window, masked)


def test_without_its_norm_it_starts_as_multi_head_attention() -> None:
    assert_starts_as_multihead(MultiTokenAttention, depth=None)


def test_the_norm_is_scaled_by_depth() -> None:
    """lambda_init(0) = 0.2: with the norm, each head's output has root mean square 0.8."""
    layer = MultiTokenAttention(E, H, depth=0, dtype=torch.float64)
    heads = []
    layer.o_proj.register_forward_pre_hook(lambda _, inputs: heads.append(inputs[0]))
    layer(torch.randn(2, 7, E, dtype=torch.float64))
    size = heads[0].unflatten(-1, (H, -1)).square().mean(dim=-1).sqrt()
    torch.testing.assert_close(size, torch.full_like(size, 0.8), atol=1e-3, rtol=0)


def test_no_cache() -> None:
    with pytest.raises(ValueError, match="cache"):
        MultiTokenAttention(E, H)(torch.randn(1, 3, E), cache=KVCache())


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="groups of 3, 4 heads"):
        MultiTokenAttention(16, 4, head_kernel=3)
    with pytest.raises(ValueError, match=r"query_kernel .* got 0"):
        MultiTokenAttention(16, 4, query_kernel=0)
