"""What torch does to the operators: compilation with dynamic sizes, export, ONNX, forward-mode differentiation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import iha
from iha.ops.differential import differential_attention, differential_attention_reference
from iha.ops.multi_token import multi_token_attention, multi_token_attention_reference
from iha.ops.multihead import multihead_attention
from iha.ops.simplicial import simplicial_attention
from iha.ops.strassen import strassen_attention
from iha.ops.talking_heads import talking_heads_attention, talking_heads_attention_reference
from support import Shape, tensors

H, G, D = 4, 2, 4


def heads(B: int, N: int, *, values: int = 1) -> list[Tensor]:
    return [torch.randn(B, N, h, D, dtype=torch.float64) for h in (H, *[G] * (2 * values))]


def mixed(B: int, N: int) -> list[Tensor]:
    return [t.detach() for t in tensors(Shape(B=B, N=N, H=H, G=G, D=D))]


def talking(B: int, N: int) -> list[Tensor]:
    return heads(B, N) + [torch.randn(H, H, dtype=torch.float64) for _ in range(2)]


def paired(B: int, N: int) -> list[Tensor]:
    q, k, _ = heads(B, N)
    v, weight = torch.randn(B, N, G // 2, 2 * D, dtype=torch.float64), torch.rand(2 * D, dtype=torch.float64)
    return [q, k, v, torch.tensor(0.3, dtype=torch.float64), weight]


def convolved(B: int, N: int) -> list[Tensor]:
    kernels = [torch.randn(s, dtype=torch.float64) for s in ((H, 3, 5), (H // 2, 2, 2))]
    return heads(B, N) + kernels


def pairs(B: int, N: int) -> list[Tensor]:
    return heads(B, N, values=2)


OPERATORS: list[tuple[Callable[..., Tensor], Callable[[int, int], list[Tensor]], dict[str, Any]]] = [
    (iha.interleaved_head_attention, mixed, {"rope_theta": 100.0}),
    (iha.interleaved_head_attention, mixed, {"window": 5, "rope_theta": 100.0, "scale": -0.3}),
    (iha.interleaved_head_attention, mixed, {"causal": "token"}),
    (multihead_attention, heads, {"rope_theta": 100.0}),
    (multihead_attention, heads, {"window": 5}),
    (talking_heads_attention, talking, {"rope_theta": 100.0}),
    (differential_attention, paired, {"lambda_init": 0.2, "window": 5}),
    (multi_token_attention, convolved, {}),
    (strassen_attention, pairs, {"window": 7}),
]
ids = [f"{function.__name__}-{options}" for function, _, options in OPERATORS]


@pytest.mark.parametrize(
    ("function", "make", "options"),
    # Tracing takes seconds each; one operator of every kind (SDPA, band, rows) in every run.
    [pytest.param(*case, marks=() if n in (0, 1, 5) else pytest.mark.slow) for n, case in enumerate(OPERATORS)],
    ids=ids,
)
def test_with_dynamic_sizes_everything_compiles_once_and_whole(
    function: Callable[..., Tensor], make: Callable[[int, int], list[Tensor]], options: dict[str, Any]
) -> None:
    torch.compiler.reset()
    counter = CompileCounter()

    def call(*inputs: Tensor) -> Tensor:
        return function(*inputs, **options)

    compiled = torch.compile(call, backend=counter, dynamic=True, fullgraph=True)
    # (The compiler takes sizes that are equal in the first call for one symbol: B must differ from H, G, D and P.)
    for B, N in ((5, 20), (6, 33), (7, 150)):
        inputs = [t.requires_grad_() for t in make(B, N)]
        got, want = compiled(*inputs), call(*inputs)
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
        grad = torch.randn_like(want)
        for a, b in zip(*(torch.autograd.grad(out, inputs, grad) for out in (got, want)), strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)
    assert counter.frame_count == 1


class Call(nn.Module):
    def __init__(self, function: Callable[..., Tensor], options: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, **self.options)


def masked(q: Tensor, k: Tensor, v: Tensor, real: Tensor, **options: Any) -> Tensor:
    return multihead_attention(q, k, v, key_padding_mask=real, **options)


EXPORTED = [case for case in OPERATORS if case[0] is not strassen_attention] + [
    (masked, lambda B, N: [*heads(B, N), torch.rand(B, N) < 0.8], {"window": 6}),
]  # (Strassen attention looks at its values to decide how to compute a row, which a graph cannot.)


@pytest.mark.parametrize(
    ("function", "make", "options"), EXPORTED, ids=[f"{f.__name__}-{options}" for f, _, options in EXPORTED]
)
@torch.no_grad()
def test_exported_with_dynamic_batch_and_length(
    function: Callable[..., Tensor], make: Callable[[int, int], list[Tensor]], options: dict[str, Any]
) -> None:
    inputs = make(3, 21)
    sizes = {0: torch.export.Dim("B", min=1, max=64), 1: torch.export.Dim("N", min=2, max=4096)}
    dynamic = tuple(sizes if t.shape[:2] == (3, 21) else None for t in inputs)
    program = torch.export.export(Call(function, options), tuple(inputs), dynamic_shapes=(dynamic,))
    assert not [n for n in program.graph.nodes if "iha" in str(n.target)], "it would need this package to run"
    for B, N in ((1, 5), (2, 40), (5, 2)):
        again = [new if d is not None else old for new, old, d in zip(make(B, N), inputs, dynamic, strict=True)]
        torch.testing.assert_close(program.module()(*again), function(*again, **options), atol=1e-12, rtol=0)


@torch.no_grad()
def test_an_operator_asked_for_by_name_is_refused_in_an_export() -> None:
    with pytest.raises(Exception, match=r"backend='banded' cannot do this: an exported program"):
        torch.export.export(Call(multihead_attention, {"window": 3, "backend": "banded"}), tuple(heads(2, 9)))


@pytest.mark.parametrize("options", [{"rope_theta": 100.0}, {"window": 5}], ids=str)
@torch.no_grad()
def test_onnx_computes_the_same(options: dict[str, Any]) -> None:
    pytest.importorskip("onnxscript")
    onnx_reference = pytest.importorskip("onnx.reference")
    inputs = [t.float() for t in mixed(2, 11)]
    program = torch.onnx.export(Call(iha.interleaved_head_attention, options).eval(), tuple(inputs), dynamo=True)
    assert program is not None
    evaluator = onnx_reference.ReferenceEvaluator(program.model_proto)
    names = evaluator.input_names
    (got,) = evaluator.run(None, dict(zip(names, (t.numpy() for t in inputs), strict=True)))
    want = iha.reference.interleaved_head_attention(*(t.double() for t in inputs), **options)
    torch.testing.assert_close(torch.from_numpy(got).double(), want, atol=1e-5, rtol=0)


DEFINITIONS = {
    talking_heads_attention: talking_heads_attention_reference,
    differential_attention: differential_attention_reference,
    multi_token_attention: multi_token_attention_reference,
    iha.interleaved_head_attention: iha.reference.interleaved_head_attention,
}
DIFFERENTIATED = [case for case in OPERATORS if case[0] in DEFINITIONS]


@pytest.mark.parametrize(
    ("function", "make", "options"), DIFFERENTIATED, ids=[f"{f.__name__}-{options}" for f, _, options in DIFFERENTIATED]
)
def test_forward_mode_is_that_of_the_definition(
    function: Callable[..., Tensor], make: Callable[[int, int], list[Tensor]], options: dict[str, Any]
) -> None:
    inputs = tuple(make(2, 11))
    directions = tuple(torch.randn_like(t) for t in inputs)
    (got, got_tangent), (want, want_tangent) = (
        torch.func.jvp(lambda *t, f=f: f(*t, **options), inputs, directions) for f in (function, DEFINITIONS[function])
    )
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    assert want_tangent.abs().max() > 0.1
    torch.testing.assert_close(got_tangent, want_tangent, atol=1e-10, rtol=1e-10)


def test_forward_mode_over_reverse_mode() -> None:
    """A Hessian-vector product: the outer tangent must reach through the inner gradient."""
    q, k, v = heads(1, 6)
    direction = torch.randn_like(q)

    def gradient(function: Callable[..., Tensor], **options: Any) -> Tensor:
        def value(q: Tensor) -> Tensor:
            return function(q, k, v, **options).square().sum()

        return torch.func.jvp(torch.func.grad(value), (q,), (direction,))[1]

    got = gradient(multihead_attention, window=3)
    eyes = [torch.eye(n, dtype=q.dtype)[:, :, None] for n in (H, G, G)]

    def definition(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ones = torch.ones(H, 1, dtype=q.dtype)
        return iha.reference.interleaved_head_attention(q, k, v, *eyes, ones, window=3)

    torch.testing.assert_close(got, gradient(definition), atol=1e-10, rtol=1e-10)
    assert got.abs().max() > 1e-3


def test_forward_mode_that_an_operator_lacks_is_an_error() -> None:
    q, k, v = heads(1, 6)
    with pytest.raises(ValueError, match=r"backend='banded' cannot do this: it has no forward-mode derivative"):
        torch.func.jvp(lambda q: multihead_attention(q, k, v, window=3, backend="banded"), (q,), (q,))
    with pytest.raises(ValueError, match="2-simplicial attention has no forward-mode derivative"):
        torch.func.jvp(lambda q: simplicial_attention(q, k, k, v, v), (q,), (q,))
