"""Blocks of query rows: as an autograd function and as an operator, the same numbers."""

import torch

from iha.ops.masking import Masking
from iha.ops.talking_heads import talking_heads_attention


def inputs() -> list[torch.Tensor]:
    shapes = [(2, 9, 4, 4), (2, 9, 2, 4), (2, 9, 2, 4), (4, 4), (4, 4)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_the_operator_passes_torchs_own_checks():
    q, k, v, *mixes = inputs()
    masking = Masking.of("virtual", 4, torch.rand(2, 9) < 0.8)
    arguments = ("talking_heads", q, [k, v], mixes, *masking.pack(), 0.5, 4, 0)
    torch.library.opcheck(torch.ops.iha.query_rows.default, arguments)


def test_the_operator_is_the_autograd_function():
    q, k, v, *mixes = inputs()
    masking, tensors = Masking.of("virtual", 4), [q, k, v, *mixes]
    for chunk in (2, 100):
        by_function = talking_heads_attention(*tensors, **masking.keywords, scale=0.5, chunk=chunk)
        by_operator = torch.ops.iha.query_rows("talking_heads", q, [k, v], mixes, *masking.pack(), 0.5, chunk, 0)
        assert torch.equal(by_operator, by_function)
        grad = torch.randn_like(by_function)
        for a, b in zip(*(torch.autograd.grad(o, tensors, grad) for o in (by_operator, by_function)), strict=True):
            assert torch.equal(a, b)
