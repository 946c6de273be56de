"""The operator against the float64 reference: every option, outputs and all seven gradients."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import iha
from support import NAMES, Shape, assert_all_close, assert_as_good_as_formula, outputs_and_gradients, tensors

pytestmark = pytest.mark.usefixtures("poisoned_memory")

operator = iha.interleaved_head_attention
reference = iha.reference.interleaved_head_attention


def masks(kind: str, B: int, N: int) -> dict[str, torch.Tensor]:
    index = torch.arange(N).expand(B, N)
    first = torch.arange(B)[:, None] + 1
    real = {
        "left": index >= first.clamp(max=N - 1),
        "right": index < (N - first).clamp(min=1),
        "holes": (index * 7 + first) % 3 > 0,
    }
    documents = ((index + first) // 4) % 3  # an id comes back later: equal ids see each other wherever they stand
    return {
        **({"key_padding_mask": real[side]} if (side := kind.split("+")[0]) in real else {}),
        **({"document_ids": documents} if "documents" in kind else {}),
    }


MASKS = ("none", "left", "right", "holes", "documents", "left+documents", "holes+documents")

options = st.fixed_dictionaries(
    {
        "causal": st.sampled_from(["virtual", "token", None]),
        "window": st.none() | st.integers(1, 30),
        "rope_theta": st.sampled_from([None, 100.0]),
        "rope_positions": st.sampled_from(["virtual", "token"]),
        "scale": st.sampled_from([None, 0.3]),
    }
)


@st.composite
def shapes(draw) -> Shape:
    G, N = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    return Shape(
        B=draw(st.integers(1, 3)),
        N=N,
        Nq=draw(st.sampled_from([N, N, 1, (N + 1) // 2])),
        H=G * draw(st.integers(1, 3)),
        G=G,
        P=draw(st.integers(1, 4)),
        D=2 * draw(st.integers(1, 4)),
        full=draw(st.booleans()),
    )


@settings(max_examples=300)
@given(shapes(), options, st.sampled_from(MASKS))
def test_any_shape_and_option_matches_the_reference(shape, options, mask):
    options = {**options, **masks(mask, shape.B, shape.N)}
    inputs = tensors(shape)
    assert_all_close(
        outputs_and_gradients(operator, inputs, **options), outputs_and_gradients(reference, inputs, **options)
    )


@st.composite
def uneven(draw) -> tuple[Shape, dict]:
    """Other numbers of pseudo-keys than of pseudo-queries, and of mixed heads than of heads."""
    shape, chosen = draw(shapes()), draw(options)
    G = draw(st.integers(1, 3))
    mixed = draw(st.sampled_from([None, (G * draw(st.integers(1, 3)), G)]))
    shape = replace(shape, P_k=draw(st.integers(1, 4)), mixed=mixed)
    if shape.P_k != shape.P:
        chosen |= {"causal": draw(st.sampled_from(["token", None])), "rope_positions": "token"}
    return shape, chosen


@settings(max_examples=200)
@given(uneven(), st.sampled_from(MASKS))
def test_other_numbers_of_pseudo_keys_and_of_mixed_heads_match_the_reference(case, mask):
    shape, chosen = case
    chosen = {**chosen, **masks(mask, shape.B, shape.N)}
    inputs = tensors(shape)
    assert_all_close(
        outputs_and_gradients(operator, inputs, **chosen), outputs_and_gradients(reference, inputs, **chosen)
    )


@pytest.mark.parametrize("mask", ["none", "holes+documents"])
@pytest.mark.parametrize("causal", ["token", None])
@pytest.mark.parametrize("numbers", [(1, 3), (3, 1), (2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize(("N", "window", "Nq"), [(111, None, 111), (111, 7, 111), (500, 50, 500), (111, 40, 30)])
def test_uneven_numbers_over_several_tiles(N, window, Nq, numbers, causal, mask):
    shape = Shape(B=1, N=N, Nq=Nq, H=4, G=2, P=numbers[0], P_k=numbers[1], D=8, mixed=(2, 1))
    options = {"causal": causal, "window": window, "rope_theta": 100.0, "rope_positions": "token"}
    options |= masks(mask, shape.B, N)
    inputs = tensors(shape)
    assert_all_close(
        outputs_and_gradients(operator, inputs, **options), outputs_and_gradients(reference, inputs, **options)
    )


@pytest.mark.parametrize("backend", ["sdpa", "banded", "flex"])
@pytest.mark.parametrize("causal", ["token", None])
@pytest.mark.parametrize("numbers", [(1, 3), (3, 1), (2, 3)], ids=str)
def test_every_backend_takes_uneven_numbers(numbers, causal, backend):
    torch.compiler.reset()  # torch's code for flex on CPU does not compile for dynamic lengths
    window = None if backend == "sdpa" else 9
    shape = Shape(N=40, Nq=17, P=numbers[0], P_k=numbers[1], D=8, mixed=(2, 2))
    inputs = [t.detach() for t in tensors(shape, torch.float32)]
    got = operator(*inputs, causal=causal, window=window, backend=backend)
    want = reference(*(t.double() for t in inputs), causal=causal, window=window)
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


def test_what_numbers_that_differ_cannot_have_is_named():
    inputs = tensors(Shape(P=2, P_k=3))
    for function in (operator, reference):
        with pytest.raises(ValueError, match=r"2 .*3.*'token'"):
            function(*inputs)
        with pytest.raises(ValueError, match=r"2 .*3.*'token'"):
            function(*inputs, causal="token", rope_theta=100.0)
    tables = (torch.ones(2, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="2 pseudo-queries and 3 pseudo-keys"):
        operator(*inputs, causal="token", pseudo_rotary=tables)
    with pytest.raises(ValueError, match=r"alpha_k \(2, 2, 3\), alpha_v \(2, 2, 2\)"):
        operator(*inputs[:5], inputs[5][..., :2], inputs[6], causal="token")
    mixed = tensors(Shape(mixed=(3, 2)))
    with pytest.raises(ValueError, match="2 k/v heads in alpha_k, 3 heads in alpha_q"):
        operator(*mixed)
    mixed = tensors(Shape(mixed=(2, 1)))
    with pytest.raises(ValueError, match=r"\(H, mixed heads \* P\) = \(4, 6\), got \(4, 3\)"):
        operator(*mixed[:6], torch.zeros(4, 3, dtype=torch.float64))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", ["virtual", "token", None])
@pytest.mark.parametrize(("N", "window"), [(63, None), (63, 80), (111, 7), (111, 40), (1000, 50)])
def test_lengths_that_divide_nothing(N, window, causal, mask):
    """Long enough for several tiles, and for the inside of a window to run in one call."""
    shape = Shape(B=1 if N == 1000 else 2, N=N, H=2, G=1, P=2, D=8)
    options = {"causal": causal, "window": window, "rope_theta": 1000.0, **masks(mask, shape.B, N)}
    inputs = tensors(shape)
    assert_all_close(
        outputs_and_gradients(operator, inputs, **options), outputs_and_gradients(reference, inputs, **options)
    )


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("causal", ["virtual", "token", None])
def test_gradcheck(causal, window):
    inputs = tensors(Shape(B=1, N=4, H=2, G=1, P=2, D=2))
    real = torch.tensor([[True, False, True, True]])
    assert torch.autograd.gradcheck(
        lambda *t: operator(*t, causal=causal, window=window, rope_theta=10.0, key_padding_mask=real), inputs
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", ["none", "holes+documents"])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("causal", ["virtual", "token"])
def test_low_precision_is_as_good_as_the_formula(causal, window, mask, dtype):
    shape = Shape(B=1, N=130, H=4, G=2, P=2, D=16)
    options = {"causal": causal, "window": window, "rope_theta": 1000.0, **masks(mask, shape.B, shape.N)}
    draws = []
    for _ in range(24):
        inputs = tensors(shape, dtype)  # the exact result is that of the *rounded* inputs
        exact = outputs_and_gradients(reference, [t.double() for t in inputs], **options)
        formula = outputs_and_gradients(reference, inputs, **options)
        got = outputs_and_gradients(operator, inputs, **options)
        assert {t.dtype for t in got.values()} == {dtype}
        draws.append((got, formula, exact))
    assert_as_good_as_formula(draws)


@pytest.mark.parametrize("window", [None, 6])
def test_autocast_computes_in_its_own_precision(window):
    inputs = tensors(Shape(D=8), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = operator(*inputs, window=window)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, operator(*(t.bfloat16() for t in inputs), window=window))
    assert all(g.dtype == torch.float32 for g in torch.autograd.grad(got.float().sum(), inputs))


@pytest.mark.parametrize("window", [None, 6])
def test_shapes_can_be_had_on_the_meta_device(window):
    inputs = [t.detach().to("meta") for t in tensors(Shape())]
    assert operator(*inputs, window=window, rope_theta=100.0).shape == inputs[0].shape


def identity(H: int, P: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.eye(H, dtype=dtype)[:, :, None].expand(H, H, P).contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_one_pseudo_head_and_identity_is_sdpa_bit_for_bit(dtype):
    q, k, v, *_ = tensors(Shape(N=111, H=4, G=4, P=1, D=16), dtype)
    eye = identity(4, 1, dtype)
    got = operator(q, k, v, eye, eye, eye, torch.ones(4, 1, dtype=dtype), backend="sdpa")
    want = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True).transpose(1, 2)
    assert torch.equal(got, want)
    grad = torch.randn_like(want)
    for a, b in zip(torch.autograd.grad(got, (q, k, v), grad), torch.autograd.grad(want, (q, k, v), grad), strict=True):
        assert torch.equal(a, b)


def test_one_pseudo_head_and_identity_is_plain_banded_attention(monkeypatch):
    """Bit for bit in tiles. Our own kernel sums keys in other groups where a sequence is cut into segments."""
    from iha.ops.backends.attention import attend
    from iha.ops.masking import Masking
    from iha.ops.visibility import Visibility

    q, k, v, *_ = tensors(Shape(N=300, H=4, G=2, P=1, D=16), torch.float32)
    eyes = [identity(h, 1, torch.float32) for h in (4, 2, 2)]

    def both():
        got = operator(q, k, v, *eyes, torch.ones(4, 1), window=20, backend="banded")
        return got, attend(q, k, v, Masking(Visibility("virtual", 20)), backend="banded")

    torch.testing.assert_close(*both(), atol=2e-6, rtol=0)
    monkeypatch.setattr("iha.ops.backends.tiles.runs_natively", lambda _: False)
    assert torch.equal(*both())


def plain(q, k, v, **options):
    """Multi-head attention: SDPA, with a mask where a window asks for one."""
    window = options.get("window")
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    mask = (distance >= 0) & (distance < (window or q.shape[1]))
    return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=mask).transpose(1, 2)


@pytest.mark.parametrize("window", [None, 5])
def test_equal_pseudo_heads_under_token_causality_are_mha(window):
    q, k, v, *_ = tensors(Shape(H=4, G=4))
    eye = identity(4, 3, q.dtype)
    got = operator(q, k, v, eye, eye, eye, torch.full((4, 3), 1 / 3, dtype=q.dtype), causal="token", window=window)
    torch.testing.assert_close(got, plain(q, k, v, window=window), atol=1e-12, rtol=0)


def test_selecting_the_last_pseudo_head_under_virtual_causality_is_mha_the_first_is_not():
    """E2: the appendix selects the first, which sees P copies of the past but one of itself."""
    q, k, v, *_ = (t.detach() for t in tensors(Shape(H=4, G=4)))
    eye, select = identity(4, 3, q.dtype), torch.eye(3, dtype=q.dtype)
    want = plain(q, k, v)
    last = operator(q, k, v, eye, eye, eye, select[-1].expand(4, 3))
    first = operator(q, k, v, eye, eye, eye, select[0].expand(4, 3))
    torch.testing.assert_close(last, want, atol=1e-12, rtol=0)
    assert (first - want).abs().max() > 0.1


@pytest.mark.parametrize("mask", ["left", "right", "holes", "holes+documents"])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("causal", ["virtual", "token", None])
def test_poisoned_padding_never_leaks(causal, window, mask):
    inputs = [t.detach() for t in tensors(Shape())]
    options = {"causal": causal, "window": window, "rope_theta": 100.0, **masks(mask, 2, 21)}
    real = options["key_padding_mask"]
    poisoned = [t.masked_fill(~real[:, :, None, None], torch.nan) for t in inputs[:3]] + inputs[3:]
    clean, got = (outputs_and_gradients(operator, t, **options) for t in (inputs, poisoned))
    for name in clean:
        assert torch.equal(got[name], clean[name]), name
    assert torch.equal(got["out"][~real], torch.zeros_like(got["out"][~real]))


def test_a_sequence_of_nothing_but_padding_gives_zeros_and_finite_gradients():
    real = torch.zeros(2, 21, dtype=torch.bool)
    real[1, 3:] = True
    for window in (None, 4):
        got = outputs_and_gradients(operator, tensors(Shape()), window=window, key_padding_mask=real)
        assert torch.equal(got["out"][0], torch.zeros_like(got["out"][0]))
        assert all(t.isfinite().all() for t in got.values())


@pytest.mark.parametrize("window", [None, 4])
def test_documents_are_as_if_each_stood_alone(window):
    lengths = (6, 1, 14)
    inputs = [t.detach() for t in tensors(Shape(B=1))]
    documents = torch.repeat_interleave(torch.tensor([3, 0, 7]), torch.tensor(lengths))[None]
    got = operator(*inputs, window=window, rope_theta=100.0, document_ids=documents)
    pieces = zip(*(t.split(lengths, dim=1) for t in inputs[:3]), strict=True)
    want = torch.cat([operator(*piece, *inputs[3:], window=window, rope_theta=100.0) for piece in pieces], dim=1)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("name", NAMES)
def test_non_contiguous_inputs(name, window):
    inputs = dict(zip(NAMES, tensors(Shape()), strict=True))
    strange = inputs[name].detach().mT.contiguous().mT  # same numbers, last axis strided
    assert not strange.is_contiguous()
    got = operator(*{**inputs, name: strange}.values(), window=window)
    torch.testing.assert_close(got, operator(*inputs.values(), window=window), atol=1e-13, rtol=0)


@pytest.mark.parametrize("mask", ["none", "holes+documents"])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("causal", ["virtual", "token"])
def test_compiles_into_one_graph(causal, window, mask):
    torch.compiler.reset()
    options = {"causal": causal, "window": window, "rope_theta": 100.0, **masks(mask, 2, 21)}
    inputs = tensors(Shape(D=8), torch.float32)
    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    assert_all_close(
        outputs_and_gradients(compiled, inputs, **options), outputs_and_gradients(operator, inputs, **options), 1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 5])
def test_compiles_into_one_graph_with_inductor(window):
    torch.compiler.reset()
    inputs = tensors(Shape(D=8), torch.float32)
    options = {"window": window, "rope_theta": 100.0}
    compiled = torch.compile(operator, fullgraph=True)
    assert_all_close(
        outputs_and_gradients(compiled, inputs, **options), outputs_and_gradients(operator, inputs, **options), 1e-5
    )


def test_repeats_are_bit_equal():
    inputs = tensors(Shape(N=111, D=8), torch.float32)
    first = outputs_and_gradients(operator, inputs, window=9)
    for _ in range(50):
        again = outputs_and_gradients(operator, inputs, window=9)
        assert all(torch.equal(again[name], first[name]) for name in first)


@pytest.mark.parametrize("backend", ["reference", "sdpa", "banded"])
def test_a_named_backend_is_the_same_function(backend):
    window = 5 if backend == "banded" else None
    inputs = [t.detach() for t in tensors(Shape())]
    got = operator(*inputs, window=window, backend=backend)
    torch.testing.assert_close(got, reference(*inputs, window=window), atol=1e-12, rtol=0)
