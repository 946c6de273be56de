"""Attention over token states is the attention of the layers."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from iha.layers.multihead import MultiHeadAttention
from iha.layers.simplicial import SimplicialAttention
from iha.ops.native import compiler
from iha.synthetic.config import RunConfig
from iha.synthetic.model import build_attention
from iha.synthetic.state_attention import attend_states, fits
from iha.synthetic.state_kernels import Tokens
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
        ("simplicial with offsets", 1, "paper", 16),
    ],
)
def test_states_give_the_layers_output_and_gradients(mechanism: str, P: int, model: str, head_dim: int) -> None:
    torch.manual_seed(0)
    name, _, offsets = mechanism.partition(" with ")
    init = "random" if name == "iha" else ""
    attention = build_attention(name, 2 * head_dim, 2, P, init, model, offsets="published" if offsets else "none")
    x, parts, expected = example(attention)
    out = attend_states(attention, x, Tokens.of(parts, 2, 9))[: len(expected)]
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
    weight, inputs = torch.randn_like(out), [x, *attention.parameters()]
    mine = torch.autograd.grad((out * weight).sum(), inputs)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


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
