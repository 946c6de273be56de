"""Batches: a function of the step, spread over processes, split into micro-batches, fetched ahead."""

import json

import numpy as np
import pytest
import torch

from iha.train.batches import Batch, Corpus, Prefetched, collate
from iha.train.packing import IGNORED, Sequence
from iha.train.prepare import prepare
from iha.train.recipe import Data, Source


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("batches")
    rows = "".join(json.dumps({"text": f"document {i} " * (1 + i % 7)}) + "\n" for i in range(300))
    (directory / "a.jsonl").write_text(rows)
    data = Data([Source("a", "jsonl", paths=[str(directory / "a.jsonl")])], context=16, batch=4, validation=0.1)
    return data, directory / "d", prepare(data, directory / "d", seed=0)


def corpus(prepared, seed=3):
    data, directory, tokenizer = prepared
    return Corpus(data, directory, tokenizer, seed)


def test_batches_are_a_function_of_the_step_and_spread_over_processes(prepared):
    one, other, batch = corpus(prepared), corpus(prepared), prepared[0].batch
    for step in (5, 0, 31):
        whole = one.batch(step).tokens
        for world in (1, 2, 4):
            shares = [other.batch(step, rank, world).tokens for rank in range(world)]
            assert np.array_equal(np.concatenate(shares), whole)
    epoch = len(one.sources["train"]["a"])
    steps = -(-epoch // batch)
    rows = [tuple(row) for step in range(steps) for row in one.batch(step).tokens.tolist()][:epoch]
    everything = [tuple(one.sources["train"]["a"][i].tokens.tolist()) for i in range(epoch)]
    assert sorted(rows) == sorted(everything)
    assert rows != everything


def test_validation_is_the_first_sequences_in_order(prepared):
    one = corpus(prepared)
    held_out = one.sources["validation"]["a"]
    assert one.validation("a", 3) == [0, 1, 2]
    assert one.validation("a", 10**6) == list(range(len(held_out)))
    found = one.validation_batch("a", [2, 0])
    assert found.tokens.tolist() == [held_out[2].tokens.tolist(), held_out[0].tokens.tolist()]


def sequence(start: int, documents: list[int]) -> Sequence:
    tokens = np.arange(start, start + 3)
    return Sequence(tokens, np.where(tokens % 2 == 0, tokens + 1, IGNORED), np.array(documents))


def test_collated_split_and_counted():
    batch = collate([sequence(0, [0, 0, 1]), sequence(10, [0, 0, 0]), sequence(21, [0, 0, 0])])
    assert batch.tokens.tolist() == [[0, 1, 2], [10, 11, 12], [21, 22, 23]]
    assert batch.num_targets == 2 + 2 + 1
    parts = list(batch.split(2))
    assert [len(part.tokens) for part in parts] == [2, 1]
    assert [part.num_targets for part in parts] == [4, 1]
    for name in ("tokens", "labels", "documents"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(batch, name))
    assert torch.equal(batch.first(1).labels, batch.labels[:1])
    moved = batch.to(torch.device("meta"))
    assert {t.device.type for t in (moved.tokens, moved.labels, moved.documents)} == {"meta"}


def test_documents_are_left_out_where_every_sequence_is_one():
    """Attention without document ids is faster, and the same."""
    assert collate([sequence(0, [0, 0, 0])]).documents is None
    assert collate([sequence(0, [0, 0, 0]), sequence(3, [0, 1, 1])]).documents.tolist() == [[0, 0, 0], [0, 1, 1]]
    parts = Batch(torch.zeros(3, 2), torch.zeros(3, 2), None).split(2)
    assert [part.documents for part in parts] == [None, None]


@pytest.mark.parametrize(("targets", "few"), [(0, True), (1, True), (3, True), (4, False), (8, False)])
def test_few_targets_are_less_than_half(targets, few):
    labels = np.where(np.arange(8) < targets, 5, IGNORED)
    rows = [Sequence(np.arange(4), part, np.zeros(4, np.int64)) for part in (labels[:4], labels[4:])]
    batch = collate(rows)
    assert (batch.num_targets, batch.few_targets) == (targets, few)
    assert [part.few_targets for part in batch.split(1)] == [few, few]  # one answer for the whole batch
    assert batch.to(torch.device("meta")).few_targets == batch.first(1).few_targets == few


def test_prefetched_batches_are_those_of_their_step_and_no_others_are_kept(prepared):
    one = corpus(prepared)
    ahead = Prefetched(one, rank=1, world=2, ahead=2)
    try:
        for step in (0, 1, 2, 7, 8):  # a resumed run begins anywhere
            assert torch.equal(ahead.batch(step).tokens, one.batch(step, 1, 2).tokens)
            assert sorted(ahead.pending) == [step + 1, step + 2]
    finally:
        ahead.close()
