"""The kernels over states in the paper's shapes, by vectors of either width and any number of threads."""

import copy
import platform
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from iha.ops.native import compiler
from iha.synthetic import state_kernels
from iha.synthetic.model import build_attention
from iha.synthetic.state_attention import attend_states
from iha.synthetic.state_kernels import GeluDot, Pairs, Tokens, Triples

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.fixture(params=["native", "8 numbers"])
def vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels as they are compiled here, and as on a machine without AVX-512."""
    if request.param != "native":
        if platform.machine() not in ("x86_64", "AMD64"):
            pytest.skip("a choice of x86")
        monkeypatch.setattr(state_kernels, "_FLAGS", (*state_kernels._FLAGS, "-mno-avx512f"))


@needs_compiler
@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("mechanism", "P", "window"),
    [("mha", 1, None), ("iha", 2, None), ("iha", 8, None), ("simplicial", 1, None), ("simplicial", 1, 20)],
)
def test_long_examples_by_vectors_of_either_width(mechanism: str, P: int, window: int | None, apart: bool) -> None:
    """The paper's shapes, 2-hop's positions (no multiple of 16) among them, against float64.

    Apart: some states have such large scores that the shift of all states does not serve a token that sees none.
    """
    torch.manual_seed(0)
    attention = build_attention(mechanism, 48, 3, P, "random" if mechanism == "iha" else "", "paper", window=window)
    for places, lengths in ((64, (25, 36, 64)), (49, (36, 49))):
        x = torch.randn(2 * places, 48)
        # The rarer bit at the first three positions. 2-simplicial scores grow with the cube.
        x[places : places + 3] *= 1 if not apart else 10 if mechanism == "simplicial" else 60
        x.requires_grad_()
        parts = [(torch.rand(3, N, 1) < 0.3).long() for N in lengths]
        states = [ids[..., 0] * places + torch.arange(ids.shape[1]) for ids in parts]
        inputs = [x, *attention.parameters()]
        tokens = Tokens.of(parts, 2, places)
        out = attend_states(attention, x, tokens)[: tokens.count]
        weight = torch.randn_like(out)
        mine = [out, *torch.autograd.grad((out * weight).sum(), inputs)]
        plain = torch.cat([attention(x[s]).flatten(0, 1) for s in states])
        theirs = [plain, *torch.autograd.grad((plain * weight).sum(), inputs)]
        exact, y = copy.deepcopy(attention).double(), x.detach().double().requires_grad_()
        wide = torch.cat([exact(y[s]).flatten(0, 1) for s in states])
        right = [wide, *torch.autograd.grad((wide * weight).sum(), [y, *exact.parameters()])]
        for a, b, c in zip(mine, theirs, right, strict=True):
            assert (a - c).abs().max() <= 3 * (b - c).abs().max() + 1e-6 * c.abs().max()


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize(("mechanism", "P"), [("mha", 1), ("iha", 2), ("simplicial", 1)])
def test_no_number_depends_on_the_threads(mechanism: str, P: int, threads: Callable[[int], None]) -> None:
    """Three heads shared by one, two or more threads than there are heads."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 18, P, 16, requires_grad=True) for _ in range(3))
    triples = [torch.randn(3, 18, 16, requires_grad=True) for _ in range(5)]
    tokens = Tokens.of([torch.randint(2, (count, N, 1)) for count, N in ((3, 4), (2, 9))], 2, 9)
    grad, results = torch.randn(len(tokens.state), 3, *([] if mechanism == "simplicial" else [P]), 16), []
    for count in (1, 2, 4):
        threads(count)
        if mechanism == "simplicial":
            out, inputs = Triples.apply(tokens, 0.3, 9, *triples), triples
        else:
            out, inputs = Pairs.apply(tokens, 0.3, q, k, v), [q, k, v]
        results.append([out, *torch.autograd.grad(out, inputs, grad)])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@needs_compiler
@pytest.mark.usefixtures("vectors")
def test_gelu_dot() -> None:
    torch.manual_seed(0)
    x, u, grad = 3 * torch.randn(50, 32), torch.randn(32), torch.randn(50)
    x[0, :4] = torch.tensor([-20.0, 0.0, 20.0, -5.5])

    def results(function: Callable, dtype: torch.dtype) -> list[Tensor]:
        inputs = [t.to(dtype).requires_grad_() for t in (x, u)]
        out = function(*inputs)
        return [out, *torch.autograd.grad(out, inputs, grad.to(dtype))]

    def plain(x: Tensor, u: Tensor) -> Tensor:
        return nn.functional.gelu(x) @ u

    mine, theirs = results(GeluDot.apply, torch.float32), results(plain, torch.float32)
    for a, b, c in zip(mine, theirs, results(plain, torch.float64), strict=True):
        assert (a - c).abs().max() <= 2 * (b - c).abs().max() + 1e-6
