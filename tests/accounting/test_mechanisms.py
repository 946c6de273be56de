"""Formulas of single layers against the layers themselves."""

import pytest
import torch

from iha.accounting import AttentionShape, layer_of, layer_parameters
from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec
from iha.ops.backends import flash
from iha.ops.backends.case import Case

SHAPES = [
    AttentionShape(32, 4),
    AttentionShape(24, 4, 2, 10),
    AttentionShape(40, 6, 2, 8, bias=True),
    AttentionShape(32, 4, collapse="full"),
    AttentionShape(36, 8, 4, 6, causal="token", bias=True),
]
SPECS = [LayerSpec(name) for name in MECHANISMS if name != "iha"]
SPECS += [LayerSpec("iha", None, P) for P in (1, 2, 5)]
UNEVEN = [LayerSpec("iha", None, 1, 4), LayerSpec("iha", None, 4, 1), LayerSpec("iha", 16, 2, 3)]


def build(shape: AttentionShape, spec: LayerSpec, **options: object) -> torch.nn.Module:
    own = {"collapse": shape.collapse} if spec.mechanism == "iha" else {}
    return spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, bias=shape.bias,
        causal=shape.causal, **own, **options,
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_parameters_are_those_of_the_layer(shape: AttentionShape, spec: LayerSpec) -> None:
    layer = build(shape, spec)
    parameters = layer_parameters(shape, spec)
    assert parameters.total == sum(p.numel() for p in layer.parameters())
    assert parameters.mixing == layer.num_mixing_parameters()


@pytest.mark.parametrize("spec", [*UNEVEN, LayerSpec("iha", None, 2, 2, 2), LayerSpec("iha", None, 1, 3, 8)], ids=str)
def test_parameters_with_other_numbers_of_pseudo_keys_and_heads(spec: LayerSpec) -> None:
    shape = AttentionShape(32, 4, 2, causal="token", collapse="full")
    layer = build(shape, spec, init="random")
    assert layer_parameters(shape, spec).total == sum(p.numel() for p in layer.parameters())


def test_flash_runs_pseudo_queries_as_heads_and_no_other_unequal_numbers() -> None:
    shape = AttentionShape(32, 4, causal="token")
    assert [layer_of(shape, spec).flash_obstacle() is None for spec in UNEVEN] == [False, True, False]
    assert "2 pseudo-queries and 3 pseudo-keys" in str(layer_of(shape, UNEVEN[2]).flash_obstacle())
    plain, heads = (layer_of(shape, spec).kernel_flops(256) for spec in (LayerSpec(), UNEVEN[1]))
    assert plain is not None
    assert heads is not None
    assert heads.attention == 4 * plain.attention


@pytest.mark.parametrize("causal", ["virtual", "token", None])
@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("P", [1, 3])
@pytest.mark.parametrize("head_dim", [8, 12, 264])
def test_flash_obstacles_are_those_of_the_backend(
    causal: str | None, window: int | None, P: int, head_dim: int
) -> None:
    shape, spec = AttentionShape(32, 4, head_dim=head_dim, causal=causal), LayerSpec("iha", window, P)
    refused = flash.obstacle(
        Case(shape.visibility(spec), 64, 64, head_dim, False, False, torch.bfloat16, torch.device("cuda"))
    )
    assert (layer_of(shape, spec).flash_obstacle() is None) == (refused is None)


def test_which_mechanisms_run_on_flash_kernels() -> None:
    shape = AttentionShape(64, 4)
    runs = {spec.mechanism for spec in SPECS if layer_of(shape, spec).flash_obstacle() is None}
    assert runs == {"multihead", "iha", "differential", "knocking_heads", "paired_heads"}


def test_patterns_per_head() -> None:
    shape = AttentionShape(64, 8)
    patterns = {spec.mechanism: layer_of(shape, spec).unit_costs().patterns_per_head for spec in SPECS}
    assert patterns["iha"] == 25
    assert patterns["multihead"] == 1
    assert patterns["differential"] == patterns["paired_heads"] == 2
    assert layer_of(AttentionShape(64, 8, causal="token"), UNEVEN[2]).unit_costs().patterns_per_head == 6
    assert patterns["talking_heads"] == 8


@pytest.mark.parametrize(
    ("shape", "spec", "words"),
    [
        (AttentionShape(30, 4), LayerSpec(), "4 heads, 30 wide"),
        (AttentionShape(32, 4, 3), LayerSpec(), "3 k/v heads, 4 heads"),
        (AttentionShape(32, 0), LayerSpec(), "num_heads must be at least 1, got 0"),
        (AttentionShape(32, 4, causal="both"), LayerSpec(), "'both'"),
        (AttentionShape(32, 4, collapse="none"), LayerSpec("iha", None, 2), "'none'"),
        (AttentionShape(33, 3), LayerSpec("differential"), "num_heads=3"),
        (AttentionShape(33, 3), LayerSpec("multi_token"), "3 heads"),
    ],
    ids=str,
)
def test_what_a_layer_refuses_is_refused(shape: AttentionShape, spec: LayerSpec, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        layer_parameters(shape, spec)
