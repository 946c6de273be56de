"""The order of the data: a permutation of every epoch, proportions of the mixture, independence of processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iha.train.order import BLOCK, Order, derived_key, mixed_bits, permuted


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
def test_permuted_is_a_permutation(size, key):
    assert sorted(permuted(np.arange(size), size, key).tolist()) == list(range(size))


def test_permutations_of_different_keys_differ_and_move_most_indices():
    size = 10_000
    one, other = (permuted(np.arange(size), size, key) for key in (1, 2))
    assert (one == other).mean() < 0.01
    assert (one == np.arange(size)).mean() < 0.01
    # Neighbours are not kept together: the mean distance of two random indices is size / 3.
    assert abs(np.abs(np.diff(one)).mean() / (size / 3) - 1) < 0.05


def test_permuted_needs_no_memory_of_the_domain():
    size = 10**12
    found = permuted(np.arange(1000), size, 3)
    assert len(set(found.tolist())) == 1000
    assert found.max() < size
    assert found.mean() == pytest.approx(size / 2, rel=0.1)


def test_keys_depend_on_every_part_and_their_order():
    keys = {derived_key(*parts) for parts in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (0, 1), (0, 1, 2, 0)]}
    assert len(keys) == 5


@pytest.mark.parametrize("part", [0, 1, 12345, 2**63, 2**64 - 1, 2**64 + 3, -1])
def test_keys_are_the_mixed_bits_of_their_parts_one_after_the_other(part):
    once = mixed_bits(np.array([part % 2**64], np.uint64), 0)
    assert derived_key(part) == int(once[0])
    assert derived_key(part, 7) == int(mixed_bits(np.array([7], np.uint64), int(once[0]))[0])


def test_every_epoch_of_every_source_has_every_sequence_once():
    order = Order(7, (1000, 50, 7), (3, 1, 0.5))
    found = order.locate(np.arange(20_000))
    for source, size in enumerate(order.sizes):
        for epoch in range(2):
            here = (found.source == source) & (found.epoch == epoch)
            assert sorted(found.sequence[here].tolist()) == list(range(size))


def test_the_mixture_has_its_proportions_in_every_block():
    order = Order(0, (100, 100, 100), (1, 2, 5))
    for block in range(3):
        found = order.locate(np.arange(block * BLOCK, (block + 1) * BLOCK))
        assert np.bincount(found.source).tolist() == [BLOCK // 8, BLOCK // 4, 5 * BLOCK // 8]
    shares = [np.bincount(order.locate(np.arange(i, i + 256)).source, minlength=3) / 256 for i in range(0, BLOCK, 256)]
    assert np.std([share[0] for share in shares]) < 0.05  # not one source after the other


def test_a_sample_is_found_alike_alone_and_among_others():
    order = Order(3, (321, 45), (1, 1))
    together = order.locate(np.arange(9000))
    for sample in (0, 1, 4095, 4096, 8191, 8999):
        alone = order.locate(np.array([sample]))
        assert (alone.source[0], alone.epoch[0], alone.sequence[0]) == (
            together.source[sample], together.epoch[sample], together.sequence[sample],
        )  # fmt: skip


def test_seeds_give_other_orders():
    one, other = (Order(seed, (1000,), (1,)).locate(np.arange(1000)).sequence for seed in (0, 1))
    assert (one == other).mean() < 0.02


def test_sources_that_cannot_be_mixed_are_refused():
    with pytest.raises(ValueError, match="no sequence"):
        Order(0, (10, 0), (1, 1))
    with pytest.raises(ValueError, match="below 1/4096"):
        Order(0, (10, 10), (1, 1e-6))
