"""Sliding windows in segments: an operator of torch, what it keeps for training, and the seams."""

import pytest
import torch

import iha
from iha.ops.backends import banded
from support import Shape, assert_all_close, outputs_and_gradients, tensors


@pytest.mark.parametrize(("causal", "P_k", "mixed"), [("virtual", None, 2), ("token", 3, 4)])
def test_banded_attention_passes_torchs_own_checks_of_an_operator(causal, P_k, mixed):
    """The second case has 3 pseudo-keys, and mixes 2 heads into 4."""
    q, k, v = (torch.randn(1, 12, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    sizes = (2 * mixed, *[(P_k or 2) * mixed] * 2)
    rows = [torch.randn(size, 2, dtype=torch.float64, requires_grad=True) for size in sizes]
    back = torch.randn(2, 2 * mixed, dtype=torch.float64, requires_grad=True)
    rotary = (torch.rand(2, 2), torch.rand(2, 2)) if P_k is None else (None, None)
    arguments = (q, k, v, *rows, back, causal, 3, 2, P_k, None, None, *rotary, 0.5, True)
    torch.library.opcheck(torch.ops.iha.banded_attention.default, arguments)


def test_training_a_local_layer_keeps_no_pseudo_heads():
    """The graph holds the un-mixed q, k, v and the attention's output: 3 + P tensors of N*H*D, not 3 + 4P."""
    H, P, D, N = 4, 4, 8, 512
    inputs = tensors(Shape(B=1, N=N, H=H, G=H, P=P, D=D), torch.float32)
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        iha.interleaved_head_attention(*inputs, window=16)
    assert sum(saved.values()) < (3 + P + 1) * N * H * D * 4


def test_segments_of_a_long_local_sequence_join_without_a_seam(monkeypatch):
    monkeypatch.setattr(banded, "_SEGMENT_BYTES", 1 << 12)
    for causal, rope_positions in (("virtual", "virtual"), ("token", "token"), (None, "virtual")):
        options = {"causal": causal, "window": 9, "rope_theta": 1000.0, "rope_positions": rope_positions}
        inputs = tensors(Shape(B=2, N=300, Nq=251, H=2, G=2, P=2, D=8, full=True))
        assert_all_close(
            outputs_and_gradients(iha.interleaved_head_attention, inputs, **options),
            outputs_and_gradients(iha.reference.interleaved_head_attention, inputs, **options),
        )
