"""Knocking heads as a layer: both kinds by their formulas, and how they start."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.knocking_heads import KINDS, KnockingHeadsAttention
from iha.layers.multihead import MultiHeadAttention
from layers.catalogue import CASES, E, G, H, assert_is_its_definition, assert_starts_as_multihead, build
from layers.catalogue import multihead_reference as multihead


def linear(layer: KnockingHeadsAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return multihead(q @ layer.knock_q, k @ layer.knock_k, v @ layer.knock_v, **options)


def mlp(layer: KnockingHeadsAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return multihead(q, k, 2 * (v @ layer.knock_up * (v @ layer.knock_gate).sigmoid()) @ layer.knock_down, **options)


@pytest.mark.parametrize("definition", [linear, mlp])
@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(
    causal: Any, window: int | None, masked: bool, definition: Any
) -> None:
    assert_is_its_definition(f"knocking_{definition.__name__}", definition, causal, window, masked)


@pytest.mark.parametrize("kind", KINDS)
def test_starts_as_multi_head_attention(kind: str) -> None:
    assert_starts_as_multihead(KnockingHeadsAttention, kind=kind)


def test_linear_knocking_can_be_multiplied_into_the_projections() -> None:
    layer = build("knocking_linear")
    plain = MultiHeadAttention(E, H, num_kv_heads=G, rope_theta=100.0, dtype=torch.float64)
    plain.load_state_dict({n: p for n, p in layer.state_dict().items() if "proj" in n})
    with torch.no_grad():
        for proj, T in ((plain.q_proj, layer.knock_q), (plain.k_proj, layer.knock_k), (plain.v_proj, layer.knock_v)):
            proj.weight.copy_((T.t() @ proj.weight.unflatten(0, (-1, 4))).flatten(0, 1))
    x = torch.randn(2, 6, E, dtype=torch.float64)
    torch.testing.assert_close(plain(x), layer(x), atol=1e-12, rtol=0)


def test_a_bad_kind_is_named() -> None:
    with pytest.raises(ValueError, match="gate"):
        KnockingHeadsAttention(16, 4, kind="gate")
