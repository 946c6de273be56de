"""Dropout of the layers: in training only, refused where it would be ignored."""

import copy

import pytest
import torch

from iha import InterleavedHeadAttention, KVCache
from iha.layers.differential import DifferentialAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.mechanisms import MECHANISMS
from iha.layers.multihead import MultiHeadAttention
from iha.layers.talking_heads import TalkingHeadsAttention


def layers(dropout):
    torch.manual_seed(0)
    return [
        InterleavedHeadAttention(32, 4, 2, dropout=dropout, window=4, rope_theta=1e4),
        MultiHeadAttention(32, 4, dropout=dropout),
        KnockingHeadsAttention(32, 4, dropout=dropout),
    ]


X = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("which", range(3))
def test_it_drops_in_training_only(which):
    plain, dropping = layers(0.0)[which], layers(0.5)[which]
    dropping.load_state_dict(plain.state_dict())
    torch.manual_seed(2)
    first, second = dropping(X), dropping(X)
    assert not torch.allclose(first, second)
    torch.manual_seed(2)
    assert torch.equal(dropping(X), first)
    torch.testing.assert_close(dropping.eval()(X), plain(X))
    assert "dropout=0.5" in repr(dropping)
    assert "dropout" not in repr(plain)


@pytest.mark.parametrize("which", range(3))
def test_with_an_empty_cache_the_same_weights_are_dropped(which):
    """As in training with `use_cache`, which is the default of `transformers`."""
    layer = layers(0.5)[which]
    torch.manual_seed(2)
    expected = layer(X)
    torch.manual_seed(2)
    torch.testing.assert_close(layer(X, cache=KVCache()), expected)


@pytest.mark.parametrize("which", range(3))
@torch.no_grad()
def test_one_token_after_a_cache_drops_weights_too(which):
    """Its mean over many draws is what evaluation computes, within five standard errors."""
    layer = layers(0.5)[which]
    filled = KVCache()
    layer.eval()(X[:, :-1], cache=filled)
    expected = layer(X[:, -1:], cache=copy.deepcopy(filled))
    layer.train()
    draws = torch.stack([layer(X[:, -1:], cache=copy.deepcopy(filled)) for _ in range(400)])
    error = draws.std(dim=0) / 400**0.5
    assert (error > 0).any()
    assert ((draws.mean(dim=0) - expected).abs() <= 5 * error + 1e-6).all()


def test_a_named_backend_that_cannot_drop_says_so():
    layer = InterleavedHeadAttention(32, 4, 2, window=4, dropout=0.1, backend="banded")
    with pytest.raises(ValueError, match="backend='banded' cannot do this: it cannot drop"):
        layer(X)
    assert layer.eval()(X).shape == X.shape


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
def test_every_layer_says_whether_it_takes_it(mechanism):
    own = {"num_pseudo_heads": 2} if mechanism.has_pseudo_heads else {}
    if mechanism.layer.takes_dropout:
        assert mechanism.layer(32, 4, dropout=0.1, **own).dropout == 0.1
    else:
        with pytest.raises((ValueError, TypeError), match="dropout"):
            mechanism.layer(32, 4, dropout=0.1, **own)


def test_layers_without_dropout_refuse_it():
    with pytest.raises(ValueError, match=r"no dropout, got dropout=0.1"):
        DifferentialAttention(32, 4, dropout=0.1)
    with pytest.raises(TypeError, match="dropout"):
        TalkingHeadsAttention(32, 4, dropout=0.1)


def test_a_bad_probability_is_refused():
    with pytest.raises(ValueError, match=r"got 1\.5"):
        InterleavedHeadAttention(32, 4, 2, dropout=1.5)
