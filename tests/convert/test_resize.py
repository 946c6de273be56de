"""Resized layers: exact where the weights allow it, and never silently another function of what is kept."""

import pytest
import torch

from convert.originals import tokens
from iha.convert.resize import Kept, resized, with_keys, with_queries
from iha.models import IHAConfig, IHAForCausalLM

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2,
}  # fmt: skip
TOKEN = {"causal": "token", "rope_positions": "token", "window": 8, "global_every": 3}


def model(**options) -> IHAForCausalLM:
    torch.manual_seed(0)
    return IHAForCausalLM(IHAConfig(**{**SIZES, **TOKEN, "num_pseudo_heads": 3, **options})).eval()


def logits(m: IHAForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        return m(tokens() % 61).logits


@pytest.mark.parametrize("collapse", ["per_head", "full"])
def test_a_warm_start_loses_nothing(collapse) -> None:
    """All pseudo-queries are equal, and all pseudo-keys: one of each computes the same."""
    source = model(mixing_init="warm_start", collapse=collapse)
    one = resized(source, {index: Kept((1,), (2,), 8) for index in (0, 1)})
    assert one.model.layers[0].self_attn.alpha_q.shape == (4, 4, 1)
    torch.testing.assert_close(logits(one), logits(source), rtol=0, atol=1e-5)
    assert one.model.embed_tokens.weight.data_ptr() == source.model.embed_tokens.weight.data_ptr()  # shared


@pytest.mark.parametrize("collapse", ["per_head", "full"])
def test_a_pseudo_query_that_r_does_not_read_is_removed_exactly(collapse) -> None:
    source = model(mixing_init="random", collapse=collapse)
    with torch.no_grad():
        for layer in source.model.layers[:2]:
            layer.self_attn.collapse.view(-1, 4, 3)[:, :, 1] = 0
    smaller = resized(source, {0: Kept((0, 2), (0, 1, 2), 8), 1: Kept((0, 2), (0, 1, 2), 8)})
    assert [layer.per_token for layer in smaller.config.layers] == [(2, 3), (2, 3), (1, 1)]
    torch.testing.assert_close(logits(smaller), logits(source), rtol=0, atol=1e-5)


def test_everything_kept_is_the_same_model_and_anything_less_is_not() -> None:
    source = model(mixing_init="random")
    everything = (0, 1, 2)
    assert torch.equal(logits(resized(source, {0: Kept(everything, everything, 8)})), logits(source))
    assert (logits(resized(source, {0: Kept(everything, (0, 1), 8)})) - logits(source)).abs().max() > 1e-3
    assert (logits(resized(source, {0: Kept(everything, everything, 2)})) - logits(source)).abs().max() > 1e-3


def test_a_removed_pseudo_head_goes_to_the_one_most_like_it() -> None:
    alpha = torch.tensor([[[1.0, 0.9, 0.0]], [[0.0, 0.1, 1.0]]])  # (2, 1, 3): the first two are alike
    kept, R = with_queries(alpha, torch.tensor([[0.2, 0.3, 0.5]]), (0, 2))
    torch.testing.assert_close(R, torch.tensor([[0.5, 0.5]]))
    assert torch.equal(kept, alpha[:, :, [0, 2]])
    values = torch.tensor([[[2.0, 4.0, 7.0]], [[0.0, 0.0, 1.0]]])
    _, mean = with_keys(alpha, values, (0, 2))
    torch.testing.assert_close(mean, torch.tensor([[[3.0, 7.0]], [[0.0, 1.0]]]))


def test_what_cannot_be_resized_is_named() -> None:
    with pytest.raises(ValueError, match="layer 2 is multihead"):
        resized(model(), {2: Kept((0,), (0,), None)})
    with pytest.raises(ValueError, match=r"at least one, got \(3,\)"):
        resized(model(), {0: Kept((3,), (0,), 8)})
    with pytest.raises(ValueError, match="causal='virtual'"):
        resized(model(causal="virtual", rope_positions="virtual"), {0: Kept((0,), (0,), 8)})
