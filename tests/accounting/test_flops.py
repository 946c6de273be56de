"""FLOPs by formula against `FlopCounterMode` on the layers.

PyTorch's counter counts a causal SDPA in full, so global attention is compared in the convention that does the same
("paper"). What is needed is then that count times visible over all pairs, which tests/ops/test_pairs.py settles.
"""

from fractions import Fraction

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from iha.accounting import AttentionShape, Flops, kernel_flops, layer_flops, ratio_to_global, schedule_flops
from iha.layers.base import SelfAttention
from iha.layers.schedule import LayerSpec, named_schedule
from iha.ops.pairs import visible
from iha.ops.simplicial import simplicial_attention
from iha.theory import flop_matching

N = 40  # tokens: below every layer's smallest block, so that the row-wise ones have one block and it is dense
FUSED = [
    LayerSpec(),
    LayerSpec("knocking_heads"),
    LayerSpec("paired_heads"),
    LayerSpec("iha", None, 2),
    LayerSpec("iha", None, 3),
]
ROW_WISE = [LayerSpec("talking_heads"), LayerSpec("multi_token"), LayerSpec("strassen"), LayerSpec("simplicial")]
SHAPES = [AttentionShape(32, 4), AttentionShape(24, 4, 2, 10)]


def build(shape: AttentionShape, spec: LayerSpec, causal: str | None, **own: object) -> SelfAttention:
    return spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, causal=causal, **own
    )


def counted_by_torch(layer: SelfAttention, num_tokens: int = N) -> int:
    counter = FlopCounterMode(display=False)
    # As plain matrix products: there is no formula for SDPA's fused CPU kernel, it would count as nothing.
    with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):
        layer(torch.randn(1, num_tokens, layer.embed_dim))
    return counter.get_total_flops()


@pytest.mark.parametrize("causal", [None, "virtual"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spec", FUSED, ids=str)
def test_fused_mechanisms(spec: LayerSpec, shape: AttentionShape, causal: str | None) -> None:
    own = {"backend": "reference"} if spec.mechanism == "iha" else {}  # there R per head is a product
    flops = layer_flops(shape, spec, N, "paper")
    assert flops.total == counted_by_torch(build(shape, spec, causal, **own))


@pytest.mark.parametrize("spec", [LayerSpec("iha", None, 1, 4), LayerSpec("iha", None, 4, 1, 2)], ids=str)
def test_unequal_numbers_and_fewer_heads_cost_the_product_of_the_numbers(spec: LayerSpec) -> None:
    """P_q·P_k·H'/H times multi-head attention; torch counts the same."""
    shape = AttentionShape(32, 4, 2, causal=None, collapse="full")
    layer = build(shape, spec, None, collapse="full", init="random", backend="reference")
    assert layer_flops(shape, spec, N).total == counted_by_torch(layer)
    share = Fraction(spec.num_mixed_heads or 4, 4)
    assert layer_flops(shape, spec, N).attention == 4 * share * layer_flops(shape, LayerSpec(), N).attention


@pytest.mark.parametrize("numbers", [(1, 4), (4, 1), (2, 2)], ids=str)
def test_the_matched_window_depends_on_the_product_of_the_numbers(numbers: tuple[int, int]) -> None:
    P, P_k = numbers
    schedule = named_schedule("iha", 5, num_tokens=8192, num_pseudo_heads=P, num_pseudo_keys=P_k)
    assert schedule[0].window == 1024
    shape = AttentionShape(2560, 20, causal="token")
    assert ratio_to_global(shape, schedule, 8192, "causal") == 1


@pytest.mark.parametrize("P", [1, 3])
def test_a_full_collapse_is_a_product_and_a_per_head_one_is_not(P: int) -> None:
    """The fast path applies a per-head R elementwise, and torch counts matrix products only."""
    H, D, spec = 4, 8, LayerSpec("iha", None, P)
    full, per_head = (AttentionShape(32, H, collapse=collapse) for collapse in ("full", "per_head"))
    assert counted_by_torch(build(full, spec, "virtual", collapse="full")) == layer_flops(full, spec, N, "paper").total
    elementwise = 2 * N * P * D * H
    measured = counted_by_torch(build(per_head, spec, "virtual"))
    assert measured + elementwise == layer_flops(per_head, spec, N, "paper").total


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spec", ROW_WISE, ids=str)
def test_row_wise_mechanisms(spec: LayerSpec, shape: AttentionShape) -> None:
    own = {} if spec.mechanism == "simplicial" else {"chunk": N}
    unmasked = AttentionShape(shape.embed_dim, shape.num_heads, shape.num_kv_heads, shape.head_dim, causal=None)
    assert layer_flops(unmasked, spec, N).total == counted_by_torch(build(shape, spec, None, **own))


@pytest.mark.parametrize("spec", ROW_WISE[:3], ids=str)
def test_one_query_at_a_time_does_what_is_needed_and_no_more(spec: LayerSpec) -> None:
    """With blocks of one row every executed pair is a visible one, so the counter sees the causal halves."""
    shape = AttentionShape(32, 4)
    measured = counted_by_torch(build(shape, spec, "virtual", chunk=1), 12)
    flops = layer_flops(shape, spec, 12)
    extra = 0
    if spec.mechanism == "multi_token":  # every block computes the logits of cq - 1 = 5 rows before it once more
        extra = sum(2 * 8 * 4 * min(5, n) * (n + 1) for n in range(12))
    if spec.mechanism == "strassen":
        extra = 2 * 8 * 4 * (sum((n + 1) ** 2 for n in range(12)) - 12 * 12)  # k1·k2 again in every block
        extra -= 2 * (8 + 1) * 4  # the first row's contraction over a single key, which einsum does by elements
    assert measured == flops.total + extra


@pytest.mark.parametrize("window", [None, 5])
def test_visible_triples_are_what_simplicial_attention_needs(window: int | None) -> None:
    shape, spec = AttentionShape(32, 4), LayerSpec("simplicial", window)
    heads = [torch.randn(1, 12, 4, 8) for _ in range(5)]
    with FlopCounterMode(display=False) as counter:
        simplicial_attention(*heads, window=window, max_block_scores=1)  # one query and one second key at a time
    assert counter.get_total_flops() == layer_flops(shape, spec, 12).attention


def test_differential_needs_less_than_a_kernel_does() -> None:
    shape, spec = AttentionShape(32, 4), LayerSpec("differential")
    H, D = 4, 8
    flops = layer_flops(shape, spec, N, "paper")
    assert flops.attention == (2 * D + 2 * 2 * D) * H * N * N  # scores D wide, values 2D
    # Scores over 2D, half of it zeros: a third more.
    assert counted_by_torch(build(shape, spec, "virtual")) == flops.projections + flops.attention * 4 // 3
    executed = kernel_flops(shape, spec, N, (N, N))
    assert executed is not None
    assert executed.attention == flops.attention * 4 // 3


def test_what_torch_counts_is_the_needed_times_all_over_visible_pairs() -> None:
    """The causal half, explicitly: N² counted, N(N+1)/2 needed."""
    shape, spec = AttentionShape(32, 4), LayerSpec("iha", None, 3)
    needed, counted = layer_flops(shape, spec, N), layer_flops(shape, spec, N, "paper")
    assert Fraction(counted.attention, needed.attention) == Fraction((3 * N) ** 2, visible(shape.visibility(spec), N))
    assert visible(shape.visibility(spec), N) == 3 * N * (3 * N + 1) // 2
    assert (needed.mixing, needed.projections) == (counted.mixing, counted.projections)


def test_kernel_executes_whole_tiles() -> None:
    shape, spec = AttentionShape(32, 4), LayerSpec()
    executed, needed = kernel_flops(shape, spec, 1024), layer_flops(shape, spec, 1024)
    assert executed is not None
    # 8 x 8 tiles, 36 of them on or below the diagonal.
    assert executed.attention == 4 * 8 * 4 * 36 * 128 * 128
    assert executed.attention > needed.attention
    assert kernel_flops(shape, LayerSpec("talking_heads"), 1024) is None
    assert kernel_flops(AttentionShape(32, 4, causal="token"), LayerSpec("iha", 8, 2), 1024) is None


def test_a_schedule_is_the_sum_of_its_layers() -> None:
    shape = AttentionShape(32, 4)
    schedule = named_schedule("iha", 7, num_tokens=128, num_pseudo_heads=2)
    total = Flops(0, 0, 0)
    for spec in schedule:
        total = total + layer_flops(shape, spec, 128)
    assert schedule_flops(shape, schedule, 128) == total
    assert total.total == total.projections + total.mixing + total.attention


@pytest.mark.parametrize("P", [1, 2, 4, 8])
def test_three_fifths_and_one(P: int) -> None:
    """E11, on whole schedules: 3/5 as the paper counts, 1 with causality counted on both sides, 1 - 1/(5P²) exactly."""
    N = 8192
    shape, schedule = AttentionShape(2560, 20), named_schedule("iha", 5, num_tokens=N, num_pseudo_heads=P)
    assert ratio_to_global(shape, schedule, N, "paper") == Fraction(3, 5)
    assert ratio_to_global(shape, schedule, N, "causal") == 1
    assert abs(ratio_to_global(shape, schedule, N, "exact") - (1 - Fraction(1, 5 * P * P))) < Fraction(1, N)


def test_a_global_interleaved_layer_costs_p_squared() -> None:
    shape = AttentionShape(64, 4)
    plain, interleaved = (layer_flops(shape, spec, 512, "paper") for spec in (LayerSpec(), LayerSpec("iha", None, 4)))
    assert interleaved.attention == 16 * plain.attention


@pytest.mark.parametrize(("N", "P"), [(64, 1), (200, 2), (513, 4)])
def test_agrees_with_appendix_c_as_the_theory_counts_it(N: int, P: int) -> None:
    """Derived there on its own and measured on the reference operator."""
    W, D, H = N // (2 * P * P), 8, 4
    shape, local = AttentionShape(32, H), LayerSpec("iha", N // (2 * P * P), P)
    flops = layer_flops(shape, local, N)
    assert flops.attention == 4 * D * H * flop_matching.local_pairs(N, P, W)
    assert Fraction(flops.mixing, flops.attention) == flop_matching.mixing_share(N, H, P, D)
    pattern = named_schedule("iha", 5, num_tokens=N, num_pseudo_heads=P)
    both_causal = flop_matching.schedule_ratio(N, P, W, global_layer_causal=True, baseline_causal=True)
    assert ratio_to_global(shape, pattern, N) == both_causal
