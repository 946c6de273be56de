"""The schedules of the paper, as data."""

import pytest
import torch

from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec, flop_matched_window, is_global, named_schedule, repeated, with_global_layers


def test_global_and_local_share_the_pattern() -> None:
    """Four local layers, one global; 5 does not divide the paper's 26 layers, and layer 26 is local."""
    baseline = named_schedule("global_local", 26)
    ours = named_schedule("iha", 26, num_tokens=8192, num_pseudo_heads=4)
    for schedule, local in ((baseline, LayerSpec("multihead", 512)), (ours, LayerSpec("iha", 256, 4))):
        assert [n + 1 for n, layer in enumerate(schedule) if layer == LayerSpec()] == [5, 10, 15, 20, 25]
        assert {layer for n, layer in enumerate(schedule) if (n + 1) % 5} == {local}
        assert schedule[25] == local
        assert len(schedule) == 26


@pytest.mark.parametrize(("N", "P", "W"), [(8192, 1, 4096), (8192, 8, 64), (2048, 3, 113), (8, 2, 1)])
def test_the_paper_s_window(N: int, P: int, W: int) -> None:
    assert flop_matched_window(N, P) == W == N // (2 * P * P)


def test_a_spec_is_plain_data() -> None:
    assert LayerSpec("iha", 64, 2).as_data() == {"mechanism": "iha", "window": 64, "num_pseudo_heads": 2}
    uneven = {"mechanism": "iha", "window": 64, "num_pseudo_heads": 1, "num_pseudo_keys": 4, "num_mixed_heads": 2}
    assert LayerSpec("iha", 64, 1, 4, 2).as_data() == uneven
    assert LayerSpec(**uneven).per_token == (1, 4)
    assert flop_matched_window(8192, 1, 4) == flop_matched_window(8192, 2) == 1024
    assert named_schedule("iha", 5, num_tokens=8192, num_pseudo_heads=1, num_pseudo_keys=4)[0] == LayerSpec(
        "iha", 1024, 1, 4
    )
    assert named_schedule("global", 3) == (LayerSpec(),) * 3
    assert named_schedule("talking_heads", 2) == (LayerSpec("talking_heads"),) * 2
    local = LayerSpec("differential", 8)
    assert with_global_layers((local,) * 4, global_every=2) == (local, LayerSpec()) * 2
    assert with_global_layers((local,) * 4, global_every=None) == (local,) * 4


def test_older_names_become_todays() -> None:
    assert LayerSpec("mha", 3) == LayerSpec("multihead", 3)
    assert named_schedule("mha", 2) == named_schedule("global", 2)


def test_the_fifth_layer_is_global() -> None:
    assert [layer for layer in range(12) if is_global(layer)] == [4, 9]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_can_be_built_and_run(mechanism: str) -> None:
    layer = LayerSpec(mechanism, window=4).build(16, 4, depth=2, num_kv_heads=2, bias=True)
    assert type(layer) is MECHANISMS[mechanism].layer
    assert layer.window == 4
    assert layer(torch.randn(2, 6, 16)).shape == (2, 6, 16)
    if MECHANISMS[mechanism].knows_depth:
        assert layer.depth == 2


def test_own_arguments_are_passed_on() -> None:
    layer = LayerSpec("iha", 4, 3).build(16, 4, init="random", rope_theta=1e4, dtype=torch.float64)
    assert isinstance(layer, InterleavedHeadAttention)
    assert (layer.num_pseudo_heads, layer.init, layer.rope_theta) == (3, "random", 1e4)
    assert layer.alpha_q.dtype == torch.float64


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: LayerSpec("mamba"), "mamba"),
        (lambda: LayerSpec(window=0), "window .* got 0"),
        (lambda: LayerSpec(window=2.5), "window .* got 2.5"),
        (lambda: LayerSpec(window=True), "window .* got True"),
        (lambda: LayerSpec(["iha"]), "iha"),
        (lambda: LayerSpec("multihead", num_pseudo_heads=2), "num_pseudo_heads=2"),
        (lambda: LayerSpec("iha", num_pseudo_heads=0), "num_pseudo_heads .* got 0"),
        (lambda: LayerSpec("iha", num_pseudo_keys=0), "num_pseudo_keys .* got 0"),
        (lambda: LayerSpec("iha", num_mixed_heads=0), "num_mixed_heads .* got 0"),
        (lambda: LayerSpec("paired_heads", num_pseudo_keys=2), "num_pseudo_keys=2"),
        (lambda: flop_matched_window(16, 3, 4), "16 tokens, 3 pseudo-heads, 4 pseudo-keys"),
        (lambda: flop_matched_window(100, 8), "100 tokens, 8"),
        (lambda: flop_matched_window(100, 0), "0"),
        (lambda: named_schedule("local", 5), "local"),
        (lambda: named_schedule("iha", 5, num_pseudo_heads=2), "num_tokens"),
        (lambda: named_schedule("global_local", 5, window=-1), "-1"),
        (lambda: repeated((LayerSpec(),), 0), "0"),
        (lambda: repeated((), 3), "no layer"),
        (lambda: with_global_layers((LayerSpec(),), global_every=0), "0"),
    ],
)
def test_bad_schedules_are_named(make, named: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=named):
        make()
