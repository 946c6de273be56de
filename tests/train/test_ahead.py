"""A tokenizer trained ahead is the one that preparation would have trained; where that fails, preparation says why."""

import json

import pytest

from iha.train.ahead import tokenizer_ahead
from iha.train.prepare import TOKENIZER, lacks_tokenizer, prepare
from iha.train.recipe import Data, Source, Tokenizer

PUZZLES = Source("pairs", "generated", generator="pairs", count=200)


def _data(*sources):
    return Data(list(sources), Tokenizer("train", vocab_size=320), context=32, batch=2)


def test_the_tokenizer_is_the_same_and_nothing_is_written_before_it_is_asked_for(tmp_path):
    data = _data(PUZZLES)
    prepare(data, tmp_path / "alone", seed=0)
    with tokenizer_ahead(data, seed=0) as trained:
        content = trained()
        assert not (tmp_path / "ahead").exists()
        prepare(data, tmp_path / "ahead", seed=0, trained=lambda: content)
    files = {path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*") if path.is_file()}
    assert {path for path in files if path.suffix == ".tokens"}
    for path in files:
        assert (tmp_path / "ahead" / path).read_bytes() == (tmp_path / "alone" / path).read_bytes(), path
    assert content == (tmp_path / "alone" / TOKENIZER).read_text()


def test_what_cannot_be_read_is_refused_by_the_preparation(tmp_path):
    (tmp_path / "bad.jsonl").write_text(json.dumps({"text": "good"}) + "\nnot json\n")
    data = _data(Source("rows", "jsonl", paths=[str(tmp_path / "bad.jsonl")]))
    with tokenizer_ahead(data, seed=0) as trained:
        assert trained() is None
        with pytest.raises(ValueError, match=r"bad\.jsonl: the line at byte 17 is not JSON"):
            prepare(data, tmp_path / "out", seed=0, trained=trained)


def test_an_unused_tokenizer_is_not_waited_for():
    with tokenizer_ahead(_data(Source("stdlib", "stdlib")), seed=0) as trained:
        pass
    with pytest.raises(OSError, match="closed"):
        trained()


def test_only_a_tokenizer_that_is_not_there_is_to_be_trained(tmp_path):
    assert lacks_tokenizer(_data(PUZZLES), tmp_path)
    assert not lacks_tokenizer(Data([PUZZLES]), tmp_path)  # bytes
    prepare(_data(PUZZLES), tmp_path, seed=0, trained=lambda: None)
    assert not lacks_tokenizer(_data(PUZZLES), tmp_path)
