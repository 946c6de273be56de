"""Grown layers compute what they did, and their new pseudo-heads can learn."""

import pytest
import torch

from convert.originals import tokens
from convert.test_resize import TOKEN, model
from iha.convert.grow import grown, with_copied_keys, with_new_queries, with_zeros
from iha.convert.resize import Kept, resized
from iha.models import IHAForCausalLM


def logits(m: IHAForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        return m(tokens() % 61).logits


@pytest.mark.parametrize("collapse", ["per_head", "full"])
@pytest.mark.parametrize("numbers", [(2, 1), (1, 2), (2, 2), (4, 8)])
def test_the_function_stays_the_same(collapse, numbers) -> None:
    source = model(num_pseudo_heads=1, mixing_init="random", collapse=collapse).double()
    more = grown(source, {0: numbers, 1: numbers})
    assert [spec.per_token for spec in more.config.layers] == [numbers, numbers, (1, 1)]
    torch.testing.assert_close(logits(more), logits(source), rtol=0, atol=1e-12)
    assert more.model.embed_tokens.weight.data_ptr() == source.model.embed_tokens.weight.data_ptr()  # shared


def test_also_for_layers_that_have_pseudo_heads_already() -> None:
    source = model(num_pseudo_heads=3, num_pseudo_keys=2, mixing_init="random", window=0).double()
    torch.testing.assert_close(logits(grown(source, {1: (6, 4)})), logits(source), rtol=0, atol=1e-12)


def test_new_pseudo_heads_get_gradients_of_their_own() -> None:
    """R for the new pseudo-queries, and the copies of a key each another."""
    more = grown(model(num_pseudo_heads=1, mixing_init="random"), {0: (2, 2), 1: (2, 2)})
    inputs = tokens() % 61
    more(inputs, labels=inputs).loss.backward()
    for layer in more.model.layers[:2]:
        attention = layer.self_attn
        assert (attention.collapse.grad[:, 1].abs() > 1e-9).all()
        first, second = attention.alpha_k.grad.unbind(dim=2)
        assert (first - second).abs().max() > 0.1 * first.abs().max()


def test_a_second_doubling_brings_further_heads() -> None:
    alpha_q, R = torch.eye(4)[:, :, None], torch.ones(4, 1)
    for _ in range(2):
        alpha_q, R = with_new_queries(alpha_q, R)
    assert alpha_q[:, 0].argmax(dim=0).tolist() == [0, 1, 2, 3]  # head 0: queries of all four heads
    assert R.tolist() == [[1, 0, 0, 0]] * 4
    alpha_k, alpha_v = with_copied_keys(torch.eye(2)[:, :, None], torch.eye(2)[:, :, None])
    assert alpha_k[:, 0].T.tolist() == [[1, 0], [1, 0]]
    assert alpha_v[:, 0].T.tolist() == [[1, 1], [1, -1]]


def test_zeros_are_put_where_the_new_pseudo_heads_are() -> None:
    assert with_zeros(torch.tensor([[1, 2, 3, 4]]), 2, 3).tolist() == [[1, 2, 0, 3, 4, 0]]  # two heads of two
    assert with_zeros(torch.tensor([[[1], [2]]]), 1, 2).tolist() == [[[1, 0], [2, 0]]]


def test_new_pseudo_queries_can_be_taken_away_again() -> None:
    source = model(num_pseudo_heads=1, mixing_init="random")
    back = resized(grown(source, {0: (2, 1)}), {0: Kept((0,), (0,), TOKEN["window"])})
    assert torch.equal(logits(back), logits(source))


def test_what_is_frozen_stays_frozen() -> None:
    source = model(num_pseudo_heads=1).requires_grad_(False)
    source.model.layers[0].self_attn.alpha_q.requires_grad_(True)
    more = grown(source, {0: (2, 2)})
    assert [name for name, p in more.named_parameters() if p.requires_grad] == ["model.layers.0.self_attn.alpha_q"]


def test_what_cannot_grow_is_named() -> None:
    with pytest.raises(ValueError, match="layer 0: pseudo-heads grow by doubling, not from 3 to 4"):
        grown(model(), {0: (4, 3)})
    with pytest.raises(ValueError, match="not from 3 to 1"):
        grown(model(), {0: (3, 1)})
    with pytest.raises(ValueError, match="layer 2 is multihead"):
        grown(model(), {2: (2, 2)})
    with pytest.raises(ValueError, match="rope_positions='virtual'"):
        grown(model(num_pseudo_heads=1, rope_positions="virtual"), {0: (2, 2)})
