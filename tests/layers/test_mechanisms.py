"""The table of mechanisms says what the layers do."""

import inspect

import pytest
import torch

from iha.layers.cache import KVCache
from iha.layers.mechanisms import MECHANISMS, Mechanism, find_mechanism
from iha.ops.backends.dispatch import BACKENDS

every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def build(mechanism: Mechanism, **options: object) -> torch.nn.Module:
    return mechanism.layer(16, 4, **({"num_pseudo_heads": 2} if mechanism.has_pseudo_heads else {}), **options)


@every_mechanism
def test_a_row_is_true_of_its_layer(mechanism: Mechanism) -> None:
    takes = set(inspect.signature(mechanism.layer.__init__).parameters)
    assert mechanism.knows_depth == ("depth" in takes)
    assert mechanism.has_pseudo_heads == ("num_pseudo_heads" in takes)
    layer, x = build(mechanism), torch.randn(1, 3, 16)
    if mechanism.can_be_cached:
        assert layer(x, cache=KVCache()).shape == x.shape
    else:
        with pytest.raises(ValueError, match="cache"):
            layer(x, cache=KVCache())


@every_mechanism
def test_backends_are_those_that_the_layer_takes(mechanism: Mechanism) -> None:
    assert mechanism.backends in ((), BACKENDS)
    for backend in mechanism.backends:
        assert build(mechanism, backend=backend).backend == backend
    if not mechanism.backends:
        with pytest.raises(TypeError, match="backend"):
            build(mechanism, backend="sdpa")


def test_one_mechanism_one_name_one_label() -> None:
    assert len({m.layer for m in MECHANISMS.values()}) == len({m.label for m in MECHANISMS.values()}) == len(MECHANISMS)
    assert all(name == mechanism.name for name, mechanism in MECHANISMS.items())
    assert (MECHANISMS["multihead"].label, MECHANISMS["iha"].label) == ("MHA", "IHA")


def test_older_names_are_found_and_others_refused() -> None:
    assert find_mechanism("mha") is MECHANISMS["multihead"]
    with pytest.raises(ValueError, match=r"must be one of .*'multihead'.* got 'MHA'"):
        find_mechanism("MHA")
