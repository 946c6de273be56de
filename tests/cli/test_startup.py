"""Imports without the garbage collector."""

import gc

import pytest

from iha.cli.startup import without_collection


@pytest.fixture(autouse=True)
def _unfrozen():
    yield
    gc.unfreeze()


def test_nothing_is_collected_inside_and_what_was_made_is_frozen():
    gc.unfreeze()
    with without_collection():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_collection_comes_back_after_an_error_and_not_if_it_was_off():
    with pytest.raises(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
