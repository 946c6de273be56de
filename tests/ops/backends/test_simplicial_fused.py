"""2-simplicial attention by the fused kernel, against the definition in float64 and the blocks in float32."""

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from iha.bench.measure import allocated
from iha.ops.backends import simplicial_fused
from iha.ops.simplicial import simplicial_attention, simplicial_attention_reference
from support import outputs_and_gradients


def heads(Nq: int = 13, N: int = 13, G: int = 4, D: int = 8) -> list[Tensor]:
    return [torch.randn(3, n, h, D) for n, h in ((Nq, 4), (N, G), (N, G), (N, G), (N, G))]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes that went to the fused kernel."""
    seen: list[tuple[int, ...]] = []
    apply = simplicial_fused.attend_tile

    def spy(rows: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        seen.append(tuple(rows.shape))
        return apply(rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(simplicial_fused, "attend_tile", spy)
    return seen


@pytest.mark.parametrize("kept", [0, 1 << 21])  # rows kept for the backward pass, or computed again
@pytest.mark.parametrize(("rows", "blocks"), [(1 << 17, 1), (12 * 13 * 4, 4), (1, 13)])
def test_as_exact_as_the_blocks(
    rows: int, blocks: int, kept: int, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr(simplicial_fused, "_MAX_ROWS", rows)
    monkeypatch.setattr(simplicial_fused, "_MAX_KEPT_ROWS", kept)
    tensors = heads()
    exact = outputs_and_gradients(simplicial_attention_reference, [t.double() for t in tensors], causal=None)
    fused = outputs_and_gradients(simplicial_attention, tensors, causal=None)
    assert len(calls) == (blocks if kept else 2 * blocks)
    with sdpa_kernel(SDPBackend.MATH):
        blocked = outputs_and_gradients(simplicial_attention, tensors, causal=None)
    assert len(calls) == (blocks if kept else 2 * blocks)  # not by the fused kernel
    for name, wanted in exact.items():
        error, bound = ((found[name] - wanted).square().mean().sqrt() for found in (fused, blocked))
        assert error <= 2 * bound, f"{name}: {error:.2e}, blocks {bound:.2e}"


@pytest.mark.parametrize(("Nq", "G", "D", "scale"), [(5, 4, 8, None), (13, 2, 3, 0.7), (1, 1, 8, None)])
def test_fewer_queries_grouped_heads_and_scale(
    Nq: int, G: int, D: int, scale: float | None, calls: list[tuple[int, ...]]
) -> None:
    tensors = heads(Nq, G=G, D=D)
    wanted = outputs_and_gradients(
        simplicial_attention_reference, [t.double() for t in tensors], causal=None, scale=scale
    )
    found = outputs_and_gradients(simplicial_attention, tensors, causal=None, scale=scale)
    assert calls == [(3, 4, Nq * 13, 16)]
    for name in wanted:
        torch.testing.assert_close(found[name].double(), wanted[name], atol=2e-5, rtol=1e-5)


def test_only_what_it_can_do(calls: list[tuple[int, ...]]) -> None:
    tensors = heads()
    simplicial_attention(*tensors)  # causal
    simplicial_attention(*tensors, causal=None, window=(3, None))
    simplicial_attention(*tensors, causal=None, key_padding_mask=torch.arange(13).expand(3, 13) < 9)
    simplicial_attention(*tensors, causal=None, document_ids=torch.arange(13).expand(3, 13) // 5)
    simplicial_attention(*(t.double() for t in tensors), causal=None)
    simplicial_attention(*heads(D=32), causal=None)
    assert not calls
    simplicial_attention(*tensors, causal=None, window=13)  # no window at all
    assert len(calls) == 1


def test_rows_that_are_not_kept_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the B·H·N² rows of 16 numbers only a block's exist, in the forward pass too."""
    tensors = [torch.randn(1, 128, 4, 8) for _ in range(5)]
    monkeypatch.setattr(simplicial_fused, "_MAX_ROWS", 4 * 128)  # one query
    monkeypatch.setattr(simplicial_fused, "_MAX_KEPT_ROWS", 0)
    rows = 4 * 128 * 128 * 16 * 4  # bytes
    assert allocated(lambda: simplicial_attention(*tensors, causal=None)).peak < rows / 4


def test_backward_where_plain_products_are_asked_for() -> None:
    """The forward pass has decided; a context around the backward pass alone must not break it."""
    q, *keys = (t.requires_grad_() for t in heads())
    out = simplicial_attention(q, *keys, causal=None)
    (wanted,) = torch.autograd.grad(out.sum(), q, retain_graph=True)
    with sdpa_kernel(SDPBackend.MATH):
        (found,) = torch.autograd.grad(out.sum(), q)
    torch.testing.assert_close(found, wanted, atol=0, rtol=0)
