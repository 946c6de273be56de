"""The flash backend without a GPU: its calls by the schema of torch's own function, its masks against the oracle.

Fake CUDA tensors have shapes, dtypes and devices, but no numbers. The operator that torch registers checks the call and
answers with the shapes of a real run.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode

import iha
from iha.ops.backends import attention, flash
from iha.ops.backends.case import Case
from iha.ops.masking import Masking
from iha.ops.mixing import collapse_pseudo_heads, mix
from iha.ops.visibility import Visibility
from support import Shape, tensors

OPERATOR = torch.ops.torch_attn._varlen_attn.default
CUDA, BF16 = torch.device("cuda", 0), torch.bfloat16


class Calls(TorchDispatchMode):
    """The arguments of every call of torch's operator, by the names of its schema."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is OPERATOR:
            names = [argument.name for argument in OPERATOR._schema.arguments]
            self.seen.append({**dict(zip(names, args, strict=False)), **(kwargs or {})})
        return function(*args, **(kwargs or {}))


def fake_inputs(shape: Shape) -> list[Tensor]:
    """The operator's seven tensors on a GPU that is not there; call it inside FakeTensorMode."""
    return [torch.empty(t.shape, dtype=BF16, device=CUDA) for t in tensors(shape)]


@pytest.mark.parametrize("Nq", [None, 5])
@pytest.mark.parametrize(("window", "causal", "expected"), [(4, "virtual", [11, 0]), (None, "virtual", [-1, 0])])
def test_the_call_has_the_arguments_and_layouts_of_torchs_schema(window, causal, expected, Nq):
    shape = Shape(B=2, N=21, H=4, G=2, P=3, D=64, Nq=Nq)
    queries = Nq or shape.N
    with FakeTensorMode(), Calls() as calls:
        out = iha.interleaved_head_attention(*fake_inputs(shape), causal=causal, window=window, backend="flash")
    assert (out.shape, out.dtype, out.device) == ((2, queries, 4, 64), BF16, CUDA)
    (call,) = calls.seen
    assert call["query"].shape == (2 * queries * 3, 4, 64)
    assert call["key"].shape == call["value"].shape == (2 * 21 * 3, 2, 64)
    for name in ("query", "key", "value"):
        assert (call[name].dtype, call[name].device, call[name].stride(-1)) == (BF16, CUDA, 1)
    for name in ("cu_seq_q", "cu_seq_k"):
        assert (call[name].shape, call[name].dtype, call[name].device) == ((3,), torch.int32, CUDA)
    assert (call["max_q"], call["max_k"]) == (queries * 3, 63)
    assert call["window_size"] == expected
    assert call["is_causal"] == (expected == [-1, 0])  # torch's own translation of the window
    assert call["enable_gqa"] is True
    assert call["scale"] == 64**-0.5


def test_auto_takes_it_for_windows():
    with FakeTensorMode(), Calls() as calls:
        iha.interleaved_head_attention(*fake_inputs(Shape(D=64)), window=4)
    assert len(calls.seen) == 1


def test_the_call_passes_torchs_body_down_to_the_kernels_forward_and_backward():
    """The Python bodies behind the operators, run on fake tensors: they call aten's flash kernels by their schemas."""
    masking = Masking(Visibility("virtual", 4, 3))
    with FakeTensorMode(), Calls() as calls:
        q, k = (torch.empty(2, 63, heads, 64, dtype=BF16, device=CUDA) for heads in (4, 2))
        packing = flash.pack(masking, 2, 21, 21, CUDA)
        flash.attend(q, k, k, masking.visibility, packing, 0.5)
        (call,) = calls.seen
        out, lse, state = varlen._varlen_attn._init_fn(**call)
        assert (out.shape, lse.shape, lse.dtype) == (call["query"].shape, (4, 126), torch.float32)
        names, lengths = ("query", "key", "value"), ("cu_seq_q", "cu_seq_k", "max_q", "max_k")
        grads = varlen._varlen_attn_backward._init_fn(
            out, *(call[name] for name in names), out, lse, *(call[n] for n in lengths),
            call["is_causal"], state, call["scale"], call["window_size"],
        )  # fmt: skip
        assert [g.shape for g in grads] == [call[name].shape for name in names]


INDEX = torch.arange(21)[None]
PADDING = {
    "left": torch.tensor([[2], [0]]) <= INDEX,
    "right": torch.tensor([[21], [15]]) > INDEX,
    "holes": torch.arange(42).view(2, 21) % 5 != 3,
    "one sequence": (INDEX >= 0) & torch.tensor([[True], [False]]),
}
DOCUMENTS = {"documents": (INDEX // 8).expand(2, 21), "interleaved": (INDEX % 3).expand(2, 21)}
MASKS = ["none", *PADDING, *DOCUMENTS, "left+documents", "right+documents", "holes+interleaved"]


def implied_mask(packing: flash.Packing, window_size: tuple[int, int], shape: Shape) -> Tensor:
    """(B, Nq*P, N*P): what varlen_attn's documentation says that a call with these arguments lets through."""
    (queries, keys), (left, right) = packing, window_size
    Nq = shape.N if shape.Nq is None else shape.Nq
    rows, cols = (
        torch.arange(shape.B * n * shape.P) if part.rows is None else part.rows
        for part, n in ((queries, Nq), (keys, shape.N))
    )
    seen = torch.zeros(shape.B * Nq * shape.P, shape.B * shape.N * shape.P, dtype=torch.bool)
    assert queries.longest == queries.bounds.diff().max()
    assert keys.longest == keys.bounds.diff().max()
    for q0, q1, k0, k1 in zip(queries.bounds[:-1], queries.bounds[1:], keys.bounds[:-1], keys.bounds[1:], strict=True):
        i, j = torch.arange(q1 - q0)[:, None] + (k1 - k0) - (q1 - q0), torch.arange(k1 - k0)[None]
        visible = ((left < 0) | (i - j <= left)) & ((right < 0) | (j - i <= right))
        seen[rows[q0:q1, None], cols[None, k0:k1]] = visible
    seen = seen.view(shape.B, Nq * shape.P, shape.B, shape.N * shape.P)
    for b in range(shape.B):
        assert not seen[b, :, [c for c in range(shape.B) if c != b]].any(), "a sequence sees another"
    return torch.stack([seen[b, :, b] for b in range(shape.B)])


@pytest.mark.parametrize("Nq", [None, 5])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("window", "causal"), [(None, "virtual"), (4, "virtual"), (None, None)])
def test_the_mask_that_the_arguments_imply_gives_the_float64_reference(window, causal, mask, Nq):
    shape = Shape(Nq=Nq)
    inputs = [t.detach() for t in tensors(shape)]
    parts = mask.split("+")
    real = next((PADDING[part] for part in parts if part in PADDING), None)
    documents = next((DOCUMENTS[part] for part in parts if part in DOCUMENTS), None)
    masking = Masking.of(causal, window, real, documents, num_pseudo_heads=shape.P)
    packing = flash.pack(masking, shape.B, Nq or shape.N, shape.N, torch.device("cpu"))
    if window is not None and any(part in ("holes", "interleaved") for part in parts):
        assert packing is None  # a window counts distances, and packing would shorten them
        return
    visible = implied_mask(packing, flash.window_size(masking.visibility), shape)
    zero = 1.0 if real is None else real[:, :, None, None].double()
    q, k, v = inputs[0] * (zero if real is None else zero[:, -(Nq or shape.N) :]), inputs[1] * zero, inputs[2] * zero
    q, k, v = (mix(t, alpha).transpose(1, 2) for t, alpha in zip((q, k, v), inputs[3:6], strict=True))
    out = F.scaled_dot_product_attention(q, k, v, visible[:, None], enable_gqa=True).nan_to_num(0)  # an empty row is 0
    got = collapse_pseudo_heads(out.transpose(1, 2), inputs[6], shape.P)
    want = iha.reference.interleaved_head_attention(
        *inputs, causal=causal, window=window, key_padding_mask=real, document_ids=documents
    )
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_packed_rows_come_back_to_their_places_and_padding_gives_zeros(monkeypatch):
    """With a kernel that returns its queries, the output is the queries, and zero at padding."""
    monkeypatch.setattr(varlen, "varlen_attn", lambda q, *_, **__: q)
    masking = Masking.of("virtual", None, PADDING["holes"], DOCUMENTS["interleaved"], num_pseudo_heads=3)
    q, k = torch.randn(2, 5 * 3, 4, 8), torch.randn(2, 21 * 3, 2, 8)
    got = flash.attend(q, k, k, masking.visibility, flash.pack(masking, 2, 5, 21, torch.device("cpu")), 1.0)
    real = PADDING["holes"][:, -5:].repeat_interleave(3, dim=1)[:, :, None, None]
    assert torch.equal(got, q * real)


def test_a_batch_of_nothing_but_padding_gives_zeros_and_gradients():
    masking = Masking.of("virtual", None, torch.zeros(2, 6, dtype=torch.bool), num_pseudo_heads=2)
    q, k, v = (torch.zeros(2, 12, 2, 8, requires_grad=True) for _ in range(3))
    out = flash.attend(q, k, v, masking.visibility, flash.pack(masking, 2, 6, 6, torch.device("cpu")), 1.0)
    assert not out.any()
    assert all(not g.any() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_holes_in_a_window_go_to_flex_by_auto_and_are_refused_by_name(monkeypatch):
    masking = Masking.of("virtual", 4, PADDING["holes"], num_pseudo_heads=3)
    q, k = torch.randn(2, 63, 4, 8), torch.randn(2, 63, 2, 8)
    monkeypatch.setattr(attention, "choose_backend", lambda case, backend: "flash")
    monkeypatch.setattr(attention.flex, "attend", lambda q, *_: q)
    assert attention.attend(q, k, k, masking) is q
    with pytest.raises(ValueError, match=r"backend='flash' cannot do this: padding .* use 'flex'"):
        attention.attend(q, k, k, masking, backend="flash")


def test_a_window_counts_further_keys_and_zero_on_the_right_says_causal():
    assert flash.window_size(Visibility("virtual", 4, 3)) == (11, 0)
    assert flash.window_size(Visibility(None, 4, 1)) == (3, 3)
    assert flash.window_size(Visibility("virtual", None, 3)) == (-1, 0)
    assert flash.window_size(Visibility(None, None, 3)) == (-1, -1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"visibility": Visibility("token", None, 2)}, "causal='token'"),
        ({"visibility": Visibility("token", None, 2, 3)}, "2 pseudo-queries and 3 pseudo-keys is a staircase"),
        ({"visibility": Visibility(None, 5, 2)}, "two-sided window of 5"),
        ({"visibility": Visibility(None, 5, 1, 2)}, "two-sided window of 5"),
        ({"dtype": torch.float32}, "float32"),
        ({"head_dim": 260}, "260"),
        ({"head_dim": 12}, "12"),
        ({"device": torch.device("cpu")}, "'cpu'"),
    ],
)
def test_each_obstacle_says_why(change, reason):
    possible = Case(Visibility("virtual", 5, 2), 9, 9, 64, False, False, BF16, CUDA)
    assert flash.obstacle(possible) is None
    assert reason in flash.obstacle(replace(possible, **change))


def test_an_older_gpu_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    case = Case(Visibility("virtual", 5, 2), 9, 9, 64, False, False, BF16, CUDA)
    assert "(7, 5)" in flash.obstacle(case)
