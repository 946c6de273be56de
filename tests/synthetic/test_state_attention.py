"""Attention over token states is the attention of the layers."""

import copy
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from iha.layers.multihead import MultiHeadAttention
from iha.layers.simplicial import SimplicialAttention
from iha.ops.native import compiler
from iha.synthetic import state_attention
from iha.synthetic.config import RunConfig
from iha.synthetic.model import build_attention
from iha.synthetic.state_attention import Tokens, _Pairs, _Triples, attend_states, fits
from iha.synthetic.trainer import Trainer, build_model

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def example(attention: nn.Module) -> tuple[Tensor, list[Tensor], Tensor]:
    """Vectors of 2 x 9 states, ids of examples of three lengths, and the layer's own output on their tokens."""
    torch.manual_seed(1)
    x = torch.randn(18, attention.embed_dim, requires_grad=True)
    parts = [torch.randint(2, (count, N, 1)) for count, N in ((3, 4), (1, 6), (2, 9))]
    outputs = [attention(x[ids[..., 0] * 9 + torch.arange(ids.shape[1])]).flatten(0, 1) for ids in parts]
    return x, parts, torch.cat(outputs)


@needs_compiler
@pytest.mark.parametrize(
    ("mechanism", "P", "model", "head_dim"),
    [
        ("mha", 1, "paper", 16),
        ("mha", 1, "ours", 8),
        ("iha", 1, "paper", 16),
        ("iha", 2, "ours", 8),
        ("iha", 8, "paper", 16),
        ("simplicial", 1, "paper", 16),
        ("simplicial", 1, "ours", 8),
    ],
)
def test_states_give_the_layers_output_and_gradients(mechanism: str, P: int, model: str, head_dim: int) -> None:
    torch.manual_seed(0)
    attention = build_attention(mechanism, 2 * head_dim, 2, P, "random" if mechanism == "iha" else "", model)
    x, parts, expected = example(attention)
    out = attend_states(attention, x, Tokens.of(parts, 2, 9))[: len(expected)]
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
    weight, inputs = torch.randn_like(out), [x, *attention.parameters()]
    mine = torch.autograd.grad((out * weight).sum(), inputs)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.fixture(params=["native", "8 numbers"])
def vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels as they are compiled here, and as on a machine without AVX-512."""
    if request.param != "native":
        if platform.machine() not in ("x86_64", "AMD64"):
            pytest.skip("a choice of x86")
        monkeypatch.setattr(state_attention, "_FLAGS", (*state_attention._FLAGS, "-mno-avx512f"))


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
            out, inputs = _Triples.apply(tokens, 0.3, 9, *triples), triples
        else:
            out, inputs = _Pairs.apply(tokens, 0.3, q, k, v), [q, k, v]
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

    mine, theirs = results(state_attention.GeluDot.apply, torch.float32), results(plain, torch.float32)
    for a, b, c in zip(mine, theirs, results(plain, torch.float64), strict=True):
        assert (a - c).abs().max() <= 2 * (b - c).abs().max() + 1e-6


@needs_compiler
def test_mlp_and_read_out_in_one() -> None:
    """Their product, taken first, gives the outputs and gradients of the model."""
    config = RunConfig("ternary", "mha", (3, 4), 8, 8, 8, 32, 2, 1, "", model="paper")
    model = build_model(config)
    parts = [torch.randint(2, (4, m * m, 1)) for m in config.sizes]
    expected = torch.cat([model(ids, m).flatten() for ids, m in zip(parts, config.sizes, strict=True)])
    out = model.forward_states(parts)[:, 0]
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
    weight, inputs = torch.randn_like(out), list(model.parameters())
    mine, theirs = (torch.autograd.grad((o * weight).sum(), inputs) for o in (out, expected))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@needs_compiler
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("mechanism", ["mha", "iha", "simplicial"])
def test_training_by_states_is_training_by_layers(mechanism: str, norm: str) -> None:
    config = RunConfig(
        "ternary", mechanism, (3, 4), 64, 16, 16, width=32, num_heads=2, num_pseudo_heads=1, init="", batch_size=16,
        model="paper", norm=norm,
    )  # fmt: skip
    if mechanism == "iha":
        config = replace(config, num_pseudo_heads=2, init="one_hot")
    losses = {}
    for kernels in ("layers", "states"):
        run = Trainer(config, kernels)
        run.run_epoch(lambda: None)
        assert run.results()["kernels"] == kernels
        losses[kernels] = [run.history[0][key] for key in ("train_loss", "validation_loss", "test_loss")]
    assert losses["states"] == pytest.approx(losses["layers"], rel=1e-5)


def test_states_are_refused_where_they_do_not_fit() -> None:
    config = RunConfig("ternary", "talking_heads", (3,), 8, 8, 8, 16, 2, 1, "", model="paper")
    with pytest.raises(ValueError, match="does not fit talking_heads"):
        Trainer(config, "states")
    with pytest.raises(ValueError, match="kernels must be one of"):
        Trainer(config, "fast")
    assert Trainer(config).kernels == "layers"
    narrow = replace(config, mechanism="multihead", width=8)  # heads of width 4
    for other in (narrow, replace(narrow, width=16, positions="2d"), replace(narrow, width=16, task="retrieval")):
        assert not build_model(other).has_states()
    wide = replace(narrow, width=16)
    assert build_model(wide).has_states()
    assert not fits(SimplicialAttention(16, 2, causal=None, window=(4, 4)), 5)
    assert fits(SimplicialAttention(16, 2, causal=None, window=(None, 4)), 5)
    large = replace(wide, mechanism="simplicial", sizes=(20,))  # 800 states: 4 GB of triples
    assert not build_model(large).has_states()


@pytest.mark.parametrize("options", [{"gate": "headwise"}, {"exclusive": True}])
def test_what_follows_attention_is_not_left_out(options: dict) -> None:
    assert fits(MultiHeadAttention(16, 2, causal=None), 5)
    assert not fits(MultiHeadAttention(16, 2, causal=None, **options), 5)


def test_other_dtypes_are_refused() -> None:
    attention = build_attention("multihead", 16, 2, 1, "").double()
    parts = [torch.zeros(1, 4, 1, dtype=torch.long)]
    with pytest.raises(ValueError, match=r"float32 on the CPU, got torch\.float64"):
        attend_states(attention, torch.randn(18, 16, dtype=torch.float64), Tokens.of(parts, 2, 9))


def test_without_a_compiler_layers_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    config = RunConfig("ternary", "mha", (3,), 8, 8, 8, 16, 2, 1, "")
    assert Trainer(config).kernels == "layers"
