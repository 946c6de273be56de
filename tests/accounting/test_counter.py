"""The formulas registered for our operators against the matrix products that run inside them."""

import pytest
import torch

from iha.accounting.counter import backward_pairs, flop_counter, forward_pairs
from iha.layers.schedule import LayerSpec
from iha.ops.backends import banded, tiled, tiles
from iha.ops.masking import Masking
from iha.ops.pairs import visible
from iha.ops.visibility import Visibility

CASES = [
    ("virtual", 9, 2, None), ("token", 9, 2, None), (None, 9, 1, None), ("virtual", 50, 3, None),
    ("token", None, 2, None), ("token", 9, 1, 3), (None, 50, 3, 2), ("token", None, 3, 2),
]  # fmt: skip


def tensors(N: int, P: int, P_k: int, H: int = 4, G: int = 2, D: int = 8, B: int = 2) -> list[torch.Tensor]:
    sizes = ((P, H), (P_k, G), (P_k, G))
    return [torch.randn(B, N * number, heads, D, requires_grad=True) for number, heads in sizes]


@pytest.mark.parametrize(("causal", "window", "P", "P_k"), CASES)
def test_tiled_attention(causal: str | None, window: int | None, P: int, P_k: int | None) -> None:
    N, rule = 100, Visibility(causal, window, P, P_k)
    q, k, v = tensors(N, *rule.per_token)
    with flop_counter() as of_the_operator:
        out = tiled.tiled_attention(q, k, v, Masking(rule), 0.3)
        out.sum().backward()

    tiling = tiled.tiling_of(q, k, Masking(rule))
    with torch.no_grad(), flop_counter() as inside:
        out, lse = tiles.forward_tiles(q, k, v, tiling, 0.3)
        tiles.backward_tiles(torch.ones_like(out), q, k, v, out, lse, tiling, 0.3)
    assert of_the_operator.get_total_flops() == inside.get_total_flops() > 0
    # Every visible pair is in a tile.
    assert min(forward_pairs(tiling), backward_pairs(tiling)) >= visible(rule, N)


@pytest.mark.parametrize("segment_bytes", [1 << 23, 1 << 12], ids=["one-segment", "many-segments"])
@pytest.mark.parametrize(("causal", "window", "P", "P_k"), [case for case in CASES if case[1] is not None])
def test_banded_attention(
    causal: str | None, window: int, P: int, P_k: int | None, segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banded, "_SEGMENT_BYTES", segment_bytes)
    layer = LayerSpec("iha", window, P, P_k).build(32, 4, num_kv_heads=2, causal=causal)
    x = torch.randn(2, 200, 32)
    with flop_counter() as of_the_operator:
        layer(x).sum().backward()

    # The same layer with the operators open: the functions behind them, which the counter can look into.
    with flop_counter() as inside:
        q, k, v = layer.project(x)
        rows = [banded.mixing_rows(alpha) for alpha in (layer.alpha_q, layer.alpha_k, layer.alpha_v)]
        inputs = [t.detach() for t in (q, k, v, *rows, layer.collapse)]
        options = (causal, window, P, P_k, None, None, None, None)
        out, virtual_out, lse = banded._forward._init_fn(*inputs, *options, 0.3, True)
        banded._backward._init_fn(torch.ones_like(out), *inputs, virtual_out, lse, *options, 0.3)
        layer.o_proj(out.flatten(2))
    counts = of_the_operator.get_flop_counts()["Global"]
    operators = sum(count for name, count in counts.items() if "iha" in str(name))
    open_counts = inside.get_flop_counts()["Global"]
    assert operators == sum(count for name, count in open_counts.items() if str(name).split(".")[-1] != "mm")
    assert len({str(name) for name in counts if "iha" in str(name)}) == 2


def test_the_cpu_kernel_of_sdpa_counts_as_torch_counts_others() -> None:
    q, k, v = (t.detach().transpose(1, 2).requires_grad_() for t in tensors(50, 1, 1, H=4, G=4))
    with flop_counter() as counter:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        forward = counter.get_total_flops()
        out.sum().backward()
    one_product = 2 * 2 * 4 * 50 * 50 * 8
    assert forward == 2 * one_product
    assert counter.get_total_flops() == (2 + 5) * one_product
