"""Sequences out of shards: nothing lost, nothing repeated, documents and loss where they belong."""

import numpy as np
import pytest

from iha.records import write_json
from iha.train.packing import IGNORED, PackedSource, whole_starts
from iha.train.shards import write_shard
from iha.train.tokenise import Encoded

END = 99


def encoded(tokens, loss=None):
    loss = [True] * len(tokens) if loss is None else loss
    return Encoded(np.array([*tokens, END]), np.array([*loss, True]))


def source(tmp_path, documents, *, context, packing="stream", dtype="uint16"):
    """One shard per list of documents."""
    for index, shard in enumerate(documents):
        write_shard(tmp_path, index, (("train", document) for document in shard), dtype)
    write_json(tmp_path / "source.json", {"fingerprint": "", "shards": len(documents), "dtype": dtype})
    return PackedSource(tmp_path, "train", context, packing, END)


@pytest.mark.parametrize("context", [1, 3, 4, 7, 50])
def test_stream_holds_every_token_once_as_target(tmp_path, context):
    rng = np.random.default_rng(0)
    shards = [[encoded(rng.integers(0, 90, rng.integers(0, 9))) for _ in range(5)] for _ in range(3)]
    packed = source(tmp_path, shards, context=context)
    expected = [t for shard in shards for document in shard for t in document.tokens[1:].tolist()]
    found = [int(t) for index in range(len(packed)) for t in packed[index].labels if t != IGNORED]
    assert found == expected
    for index in range(len(packed)):
        sequence = packed[index]
        assert len(sequence.tokens) == len(sequence.labels) == len(sequence.documents) == context


def test_documents_are_numbered_and_not_predicted_across(tmp_path):
    packed = source(tmp_path, [[encoded([1, 2]), encoded([3]), encoded([4, 5, 6])]], context=6)
    first, second = packed[0], packed[1]
    assert first.tokens.tolist() == [1, 2, END, 3, END, 4]
    assert first.documents.tolist() == [0, 0, 0, 1, 1, 2]
    assert first.labels.tolist() == [2, END, IGNORED, END, IGNORED, 5]
    assert second.tokens.tolist() == [5, 6, END, END, END, END]
    assert second.labels.tolist() == [6, END, IGNORED, IGNORED, IGNORED, IGNORED]
    assert second.documents.tolist() == [0, 0, 0, 1, 1, 1]  # padding is not attended to


def test_loss_only_where_the_document_says(tmp_path):
    packed = source(tmp_path, [[encoded([1, 2, 3, 4], [False, False, True, True])]], context=8)
    assert packed[0].labels.tolist() == [IGNORED, 3, 4, END, IGNORED, IGNORED, IGNORED, IGNORED]


def test_whole_documents_stay_together(tmp_path):
    documents = [encoded([1, 2]), encoded([3, 4]), encoded(list(range(10, 30))), encoded([5])]
    packed = source(tmp_path, [documents], context=6, packing="whole")
    assert [packed[index].tokens.tolist() for index in range(len(packed))] == [
        [1, 2, END, 3, 4, END],
        [10, 11, 12, 13, 14, 15],
        [5, END, END, END, END, END],
    ]
    assert packed[1].labels.tolist() == [11, 12, 13, 14, 15, 16]
    assert packed[2].labels.tolist() == [END, *[IGNORED] * 5]


def test_whole_starts_fill_but_do_not_overfill():
    assert whole_starts(np.array([3, 3, 3, 9, 1]), 7).tolist() == [0, 2, 3, 4]


def test_large_vocabularies_are_kept(tmp_path):
    packed = source(
        tmp_path, [[Encoded(np.array([70_000, 128_255]), np.array([True, True]))]], context=1, dtype="uint32"
    )
    assert packed[0].tokens.tolist() == [70_000]
    assert packed[0].labels.tolist() == [128_255]
