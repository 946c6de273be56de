"""The paper's model has the paper's parameter counts, and mechanisms differ in their attention alone."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from iha.synthetic.config import choose_scale, grid
from iha.synthetic.model import WEIGHTS
from iha.synthetic.trainer import build_model
from synthetic.runs import TINY, TINY_IHA

# Width 128, feed-forward 512 with biases, 64 places, 2 tokens, two norms, one logit, as in docs/synthetic.md.
AROUND = 2 * 128 + 64 * 128 + (128 * 512 + 512) + (512 * 128 + 128) + 2 * 2 * 128 + (128 + 1)
PROJECTION = 128 * 128 + 128


@pytest.mark.parametrize(
    ("mechanism", "count"),
    [
        ("mha", AROUND + 4 * PROJECTION),  # 206 849 in the legend of the paper's 3-hop figure
        ("iha", AROUND + 4 * PROJECTION - 3 * 128 + 4 * 8 * 8 * 8),  # 208 513
        ("simplicial", AROUND + 6 * PROJECTION),  # "about 240 thousand"
    ],
)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_papers_model_has_the_papers_parameter_counts(mechanism: str, count: int, norm: str) -> None:
    scale = choose_scale("paper", seeds=(0,), learning_rates=(1e-3,), norms=(norm,))
    (run,) = grid("ternary", [mechanism], scale)
    assert sum(p.numel() for p in build_model(run).parameters()) == count
    assert count == {"mha": 206_849, "iha": 208_513, "simplicial": 239_873}[mechanism]
    (longer,) = grid("binary", [mechanism], scale)
    assert sum(p.numel() for p in build_model(longer).parameters()) == count + 36 * 128  # 100 places


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_same_seed_gives_every_mechanism_the_same_surroundings(weights: str) -> None:
    a, b = (build_model(replace(run, weights=weights)) for run in (TINY, TINY_IHA))
    for name, parameter in a.named_parameters():
        if not name.startswith("attention."):
            assert torch.equal(parameter, b.get_parameter(name))


@pytest.mark.parametrize("weights", ["normal", "xavier"])
def test_how_matrices_begin(weights: str) -> None:
    model = build_model(replace(TINY_IHA, width=64, model="paper", weights=weights))
    matrices = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Embedding)]
    assert len(matrices) == 9  # tokens, places, two of the MLP, read-out, q, k, v, o
    for layer in matrices:
        rows, columns = layer.weight.shape
        std = 0.02 if weights == "normal" else (2 / (rows + columns)) ** 0.5
        assert layer.weight.std().item() == pytest.approx(std, rel=5 * (2 * layer.weight.numel()) ** -0.5)
        assert getattr(layer, "bias", None) is None or not layer.bias.any()
    alpha = model.attention.get_parameter("alpha_q")  # one-hot routing, as ever
    torch.testing.assert_close(alpha, torch.eye(2)[:, :, None].expand_as(alpha), rtol=0, atol=0.1)


def test_offsets_as_in_the_published_kernels() -> None:
    attention = build_model(replace(TINY, mechanism="simplicial", width=32, offsets="published")).attention
    assert (attention.key_offset, attention.value_offset) == (1 / 16, 1.0)
