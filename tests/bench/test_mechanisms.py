"""Every mechanism is timed at equal length, and at equal FLOPs where that is another layer."""

import pytest

from iha.accounting import AttentionShape, layer_flops
from iha.bench.mechanisms import layer_costs
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec

SHAPE, N = AttentionShape(16, 2), 32


@pytest.fixture(scope="module")
def costs():
    return list(layer_costs(SHAPE, N, num_pseudo_heads=2, repeats=1))


def test_every_mechanism_is_there_in_both_directions(costs):
    equal_length = {(c.mechanism, c.direction) for c in costs if c.comparison == "equal N"}
    assert equal_length == {(name, d) for name in MECHANISMS for d in ("forward", "forward + backward")}


def test_at_equal_flops_no_layer_costs_more_than_multi_head_attention(costs):
    baseline = layer_flops(SHAPE, LayerSpec(), N)
    matched = [c for c in costs if c.comparison == "equal FLOPs"]
    assert {"iha", "simplicial"} <= {c.mechanism for c in matched}
    for cost in matched:
        flops = layer_flops(SHAPE, LayerSpec(cost.mechanism, cost.window, cost.num_pseudo_heads), N)
        assert flops.attention + flops.mixing <= baseline.attention, cost
