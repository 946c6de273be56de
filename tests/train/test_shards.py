"""Shards: what was written is read, and what is damaged is named."""

import numpy as np
import pytest

from iha.records import write_json
from iha.train.shards import is_complete, open_shards, write_shard
from iha.train.tokenise import Encoded


def encoded(tokens, loss=None):
    return Encoded(np.array(tokens), np.ones(len(tokens), bool) if loss is None else np.array(loss))


def written(directory, *shards, dtype="uint16"):
    for index, documents in enumerate(shards):
        write_shard(directory, index, documents, dtype)
    write_json(directory / "source.json", {"fingerprint": "", "shards": len(shards), "dtype": dtype})


@pytest.mark.parametrize(("dtype", "largest"), [("uint16", 65_535), ("uint32", 128_255)])
def test_what_was_written_is_read(tmp_path, dtype, largest):
    first = [("train", encoded([1, largest, 3])), ("validation", encoded([7, 8])), ("train", encoded([4]))]
    written(tmp_path, first, [("train", encoded([5, 6], [False, True]))], dtype=dtype)
    one, two = open_shards(tmp_path, "train")
    assert one.tokens.tolist() == [1, largest, 3, 4]
    assert one.ends.tolist() == [3, 4]
    assert one.loss is None  # all predicted: no file
    assert not (tmp_path / "00000.train.loss").exists()
    assert two.tokens.tolist() == [5, 6]
    assert two.loss.tolist() == [0, 1]
    (held_out,) = open_shards(tmp_path, "validation")  # the second shard has none
    assert held_out.tokens.tolist() == [7, 8]
    assert one.tokens.dtype == np.dtype(dtype)


def test_a_shard_exists_once_its_description_does(tmp_path):
    def documents():
        yield "train", encoded([1, 2])
        assert not is_complete(tmp_path, 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path, 0, documents(), "uint16")
    assert not is_complete(tmp_path, 0)
    write_shard(tmp_path, 0, [], "uint16")
    assert is_complete(tmp_path, 0)


@pytest.mark.parametrize("suffix", ["tokens", "ends", "loss"])
def test_truncated_shards_are_named(tmp_path, suffix):
    written(tmp_path, [("train", encoded([1, 2, 3], [False, True, True]))])
    path = tmp_path / f"00000.train.{suffix}"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    (shard,) = open_shards(tmp_path, "train")
    with pytest.raises(ValueError, match=rf"00000\.train\.{suffix} has {whole - 1} bytes, its shard has {whole}"):
        getattr(shard, suffix)


def test_missing_shards_are_named(tmp_path):
    written(tmp_path, [("train", encoded([1]))], [("train", encoded([2]))])
    (tmp_path / "00001.json").unlink()
    with pytest.raises(ValueError, match="shard 1 of 2 is missing"):
        open_shards(tmp_path, "train")
