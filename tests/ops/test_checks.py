"""Every documented error of the operator, with the offending value in its message."""

import pytest
import torch

import iha
from iha.ops.multihead import multihead_attention
from support import NAMES, Shape, tensors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": "sideways"}, "'sideways'"),
        ({"causal": True}, "True"),
        ({"window": 0}, "got 0"),
        ({"window": -3}, "got -3"),
        ({"window": 2.5}, r"got 2\.5"),
        ({"rope_theta": 0.0}, r"got 0\.0"),
        ({"rope_theta": float("nan")}, "got nan"),
        ({"rope_positions": "absolute"}, "'absolute'"),
        ({"scale": float("inf")}, "got inf"),
        ({"backend": "magic"}, "'magic'"),
        ({"backend": "sdpa", "window": 5}, "window=5"),
        ({"backend": "banded"}, "no window binds 21 tokens"),
        ({"backend": "banded", "window": 21}, "no window binds 21 tokens"),
        ({"key_padding_mask": torch.ones(2, 20, dtype=torch.bool)}, r"\(2, 20\)"),
        ({"key_padding_mask": torch.ones(2, 21)}, "float32"),
        ({"document_ids": torch.zeros(1, 21, dtype=torch.long)}, r"\(1, 21\)"),
        ({"document_ids": torch.zeros(2, 21)}, "float32"),
        ({"document_ids": torch.zeros(2, 21, dtype=torch.complex64)}, "complex64"),
        ({"document_ids": torch.zeros(2, 21, dtype=torch.bool)}, "bool"),
        ({"scale": float("nan")}, "got nan"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        iha.interleaved_head_attention(*tensors(Shape()), **options)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("q", (2, 21, 4), r"q must be .*\(2, 21, 4\)"),
        ("q", (2, 22, 4, 4), r"no more queries than keys: q \(2, 22, 4, 4\)"),
        ("q", (2, 0, 4, 4), r"at least one query.*\(2, 0, 4, 4\)"),
        ("q", (2, 21, 3, 4), "2 k/v heads, 3 heads"),
        ("k", (2, 21, 2, 6), r"k \(2, 21, 2, 6\)"),
        ("v", (2, 20, 2, 4), r"v \(2, 20, 2, 4\)"),
        ("k", (2, 21, 0, 4), r"k \(2, 21, 0, 4\)"),
        ("alpha_q", (4, 4, 0), r"alpha_q .*\(4, 4, 0\)"),
        ("alpha_q", (), r"alpha_q .*\(\)"),
        ("alpha_q", (4,), r"alpha_q .*\(4,\)"),
        ("alpha_k", (4, 4, 3), r"alpha_k .*\(4, 4, 3\)"),
        ("alpha_v", (2, 2, 2), r"alpha_v .*\(2, 2, 2\)"),
        ("collapse", (4, 4), r"collapse .*\(4, 4\)"),
    ],
)
def test_bad_shapes_are_named(name, shape, message):
    inputs = dict(zip(NAMES, tensors(Shape()), strict=True)) | {name: torch.zeros(shape, dtype=torch.float64)}
    with pytest.raises(ValueError, match=message):
        iha.interleaved_head_attention(*inputs.values())


def test_odd_head_widths_cannot_rotate():
    with pytest.raises(ValueError, match="even, got 3"):
        iha.interleaved_head_attention(*tensors(Shape(D=3)), rope_theta=10.0)


def test_mixed_precisions_and_devices_are_named():
    inputs = tensors(Shape())
    with pytest.raises(ValueError, match=r"q has torch\.float64, collapse has torch\.float32"):
        iha.interleaved_head_attention(*inputs[:-1], inputs[-1].float())
    with pytest.raises(ValueError, match="on cpu, alpha_v on meta"):
        iha.interleaved_head_attention(*inputs[:5], inputs[5].to("meta"), inputs[6])


def test_a_mechanism_without_key_heads_is_refused():
    q = torch.zeros(1, 3, 2, 4)
    with pytest.raises(ValueError, match=r"k \(1, 3, 0, 4\)"):
        multihead_attention(q, q[:, :, :0], q[:, :, :0])
