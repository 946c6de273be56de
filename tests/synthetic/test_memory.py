"""Memory is estimated before a run."""

from dataclasses import replace

from iha.synthetic import memory
from synthetic.runs import TINY, TINY_IHA


def test_memory_grows_with_what_it_should() -> None:
    base = memory.memory_needed(TINY)
    assert memory.memory_needed(replace(TINY, batch_size=64)) > base
    assert memory.memory_needed(replace(TINY_IHA, num_pseudo_heads=8)) > memory.memory_needed(TINY_IHA) > base
    assert memory.memory_needed(replace(TINY, sizes=(6,))) > base
