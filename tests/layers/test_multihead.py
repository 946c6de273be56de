"""Multi-head attention as a layer, against its definition and against torch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from iha.layers.multihead import MultiHeadAttention
from layers.catalogue import CASES, E, H, assert_is_its_definition, multihead_reference


def definition(layer: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return multihead_reference(q, k, v, **options)


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("multihead", definition, causal, window, masked)


def test_agrees_with_torch() -> None:
    theirs = nn.MultiheadAttention(E, H, bias=False, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(E, H, dtype=torch.float64)
    q, k, v = theirs.in_proj_weight.detach().chunk(3)
    ours.load_state_dict(
        {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": theirs.out_proj.weight.detach()}
    )
    x, future = torch.randn(2, 7, E, dtype=torch.float64), torch.ones(7, 7, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x), theirs(x, x, x, attn_mask=future, need_weights=False)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_shared_key_value_heads_agree_with_sdpa(num_kv_heads: int) -> None:
    layer = MultiHeadAttention(E, H, num_kv_heads=num_kv_heads, dtype=torch.float64)
    x = torch.randn(2, 7, E, dtype=torch.float64)
    q, k, v = (t.transpose(1, 2) for t in layer.project(x))
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(layer(x), layer.o_proj(out.flatten(2)), atol=1e-12, rtol=0)


def test_a_bad_backend_is_named() -> None:
    with pytest.raises(ValueError, match="fastest"):
        MultiHeadAttention(16, 4, backend="fastest")
