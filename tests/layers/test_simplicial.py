"""2-simplicial attention as a layer: its definition, its two windows, its pairs of keys and values."""

from typing import Any

import pytest
import torch
from torch import Tensor

from iha.layers.cache import KVCache
from iha.layers.simplicial import SimplicialAttention
from iha.ops.rotary import rotate, rotation_by_theta
from iha.ops.simplicial import simplicial_attention_reference
from layers.catalogue import CASES, E, assert_is_its_definition, build


def definition(layer: SimplicialAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)
    del options["rope_theta"]
    return simplicial_attention_reference(q, k1, k2 + 0.25, v1, v2 + 1, **{**options, "window": layer.windows})


@pytest.mark.parametrize(("causal", "window", "masked"), CASES)
def test_equals_its_definition_with_all_gradients(causal: Any, window: int | None, masked: bool) -> None:
    assert_is_its_definition("simplicial", definition, causal, window, masked)


def test_two_windows_equal_the_definition() -> None:
    assert_is_its_definition("simplicial", definition, "token", (2, 5), True)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [(2, 4), (4, 2), (None, 2)])
def test_decoding_with_two_windows_keeps_the_longer(window: tuple[int | None, int]) -> None:
    layer = build("simplicial", window=window).requires_grad_(False)
    x, cache = torch.randn(2, 7, E, dtype=torch.float64), KVCache()
    steps = [layer(x[:, t : t + 1], cache=cache) for t in range(7)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x), atol=1e-12, rtol=0)
    assert cache.num_tokens_kept == (7 if None in window else 3)


def test_both_sets_of_keys_are_rotated() -> None:
    """A head's keys are two vectors of D features side by side; each is rotated by itself (Strassen attention)."""
    layer = build("strassen")
    k = torch.randn(2, 5, 2, 8, dtype=torch.float64)
    rotation = rotation_by_theta(3, 5, 1, 4, 100.0, torch.float64, torch.device("cpu"))
    first, second = (rotate(part, torch.arange(3, 8), 100.0) for part in (k[..., :4], k[..., 4:]))
    torch.testing.assert_close(layer.rotate_keys(k, rotation), torch.cat((first, second), dim=-1), atol=0, rtol=0)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(4, 0\)"):
        SimplicialAttention(16, 4, window=(4, 0))
    with pytest.raises(ValueError, match="10000"):
        SimplicialAttention(16, 4, rope_theta=1e4)
