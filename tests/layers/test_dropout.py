"""Dropout of the layers: in training only, refused where it would be ignored."""

import pytest
import torch

from iha import InterleavedHeadAttention, KVCache
from iha.layers.differential import DifferentialAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
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


def test_a_cache_and_dropout_do_not_go_together():
    layer = layers(0.5)[0]
    with pytest.raises(ValueError, match=r"call eval\(\) first \(dropout=0.5\)"):
        layer(X, cache=KVCache())
    layer.eval()(X, cache=KVCache())


def test_a_named_backend_that_cannot_drop_says_so():
    layer = InterleavedHeadAttention(32, 4, 2, window=4, dropout=0.1, backend="banded")
    with pytest.raises(ValueError, match="backend='banded' cannot do this: it cannot drop"):
        layer(X)
    assert layer.eval()(X).shape == X.shape


def test_layers_without_dropout_refuse_it():
    with pytest.raises(ValueError, match=r"no dropout, got dropout=0.1"):
        DifferentialAttention(32, 4, dropout=0.1)
    with pytest.raises(TypeError, match="dropout"):
        TalkingHeadsAttention(32, 4, dropout=0.1)


def test_a_bad_probability_is_refused():
    with pytest.raises(ValueError, match=r"got 1\.5"):
        InterleavedHeadAttention(32, 4, 2, dropout=1.5)
