"""Preparation: the same shards in one process, in several, and after an interruption."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from iha.train import prepare as preparing
from iha.train import sources
from iha.train.prepare import TOKENIZER, prepare
from iha.train.recipe import Data, Source, Tokenizer
from iha.train.shards import open_shards
from iha.train.tokenise import TextTokenizer, byte_tokenizer


@pytest.fixture
def data(tmp_path, monkeypatch):
    rows = "".join(json.dumps({"text": f"document {i} " * (1 + i % 7)}) + "\n" for i in range(300))
    (tmp_path / "a.jsonl").write_text(rows)
    monkeypatch.setattr(sources, "PART_BYTES", (2000, 2000))
    return Data([Source("a", "jsonl", paths=[str(tmp_path / "a.jsonl")])], context=16, batch=4, validation=0.1)


def contents(directory):
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_an_interrupted_preparation_goes_on_and_ends_alike(data, tmp_path, monkeypatch):
    prepare(data, tmp_path / "whole", seed=0)
    done = []

    def interrupted(*job):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(job)
        return original(*job)

    original = preparing._prepare_part
    monkeypatch.setattr(preparing, "_prepare_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(data, tmp_path / "cut", seed=0)
    with pytest.raises(ValueError, match=r"shard 3 of .* is missing"):
        open_shards(tmp_path / "cut" / "a", "train")
    again = []
    monkeypatch.setattr(preparing, "_prepare_part", lambda *job: again.append(job) or original(*job))
    prepare(data, tmp_path / "cut", seed=0)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert len(done) == 3
    assert not {job[2] for job in done} & {job[2] for job in again}


@pytest.mark.slow
def test_several_processes_make_the_same_shards(data, tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "_QUICK_PARTS", 1)
    prepare(data, tmp_path / "one", seed=0)
    prepare(data, tmp_path / "two", seed=0, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize(
    ("kind", "tokenizer", "num_parts", "expected"),
    [
        ("stdlib", "bytes", 3, 1),  # read before a second process has started
        ("stdlib", "bytes", 17, 3),
        ("stdlib", "bytes", 100, 4),
        ("stdlib", "train", 3, 3),  # merging pairs takes time
        ("generated", "bytes", 3, 3),  # and so does inventing
        ("stdlib", "train", 1, 1),
    ],
)
def test_processes_are_started_only_where_there_is_work_for_them(kind, tokenizer, num_parts, expected):
    source = Source("s", kind, **({"generator": "pairs", "count": 9} if kind == "generated" else {}))
    todo = [(source, Path("s"), index, sources.Part()) for index in range(num_parts)]
    text_tokenizer = TextTokenizer(byte_tokenizer(), None, is_bytes=tokenizer == "bytes")
    assert preparing._useful_workers(todo, text_tokenizer, 4) == expected


def test_held_out_documents_are_a_share_and_apart(data, tmp_path):
    prepare(data, tmp_path / "d", seed=0)
    counts = {
        split: sum(shard.num_documents for shard in open_shards(tmp_path / "d" / "a", split))
        for split in ("train", "validation")
    }
    assert counts["train"] + counts["validation"] == 300
    assert 15 <= counts["validation"] <= 45


def test_other_settings_in_the_same_directory_are_refused(data, tmp_path):
    prepare(data, tmp_path / "d", seed=0)
    prepare(replace(data, context=32), tmp_path / "d", seed=0)  # of no concern to shards
    with pytest.raises(ValueError, match="was prepared from other files, another tokenizer"):
        prepare(data, tmp_path / "d", seed=1)
    with pytest.raises(ValueError, match="was prepared from"):
        prepare(replace(data, tokenizer=Tokenizer("train", vocab_size=300)), tmp_path / "d", seed=0)


def test_an_unsuitable_tokenizer_for_chats_is_refused(tmp_path):
    (tmp_path / "c.jsonl").write_text(json.dumps({"messages": [{"role": "assistant", "content": "a"}]}) + "\n")
    from tokenizers import Tokenizer as Made
    from tokenizers import models

    made = Made(models.WordLevel({"a": 0, "</s>": 1, "?": 2}, unk_token="?"))
    made.save(str(tmp_path / "t.json"))
    data = Data(
        [Source("c", "jsonl", paths=[str(tmp_path / "c.jsonl")], chat="chatml")],
        Tokenizer("file", path=str(tmp_path / "t.json")),
    )
    with pytest.raises(ValueError, match="source c: chat format 'chatml' needs the token"):
        prepare(data, tmp_path / "d", seed=0)


def test_a_tokenizer_is_trained_on_every_source(tmp_path):
    """Each source repeats a word of its own: a tokenizer that has seen all of them has each word as one token."""
    words = ["quixotic", "zephyrous", "jabberwock"]
    sources = []
    for word in words:
        (tmp_path / f"{word}.txt").write_text(f" {word}" * 200)
        sources.append(Source(word, "text", paths=[str(tmp_path / f"{word}.txt")]))
    data = Data(sources=sources, tokenizer=Tokenizer("train", vocab_size=400), context=16, batch=1, validation=0.0)
    prepare(data, tmp_path / "d", seed=0)
    made = json.loads((tmp_path / "d" / TOKENIZER).read_text())["model"]["vocab"]
    assert all(f"Ġ{word}" in made for word in words)


def test_a_tokenizer_is_trained_by_weight_and_not_by_document(monkeypatch, tmp_path):
    """One source has long documents, the other short ones. The sample has the characters of both in equal shares."""
    from iha.train.prepare import sample

    for name, size in (("long", 10_000), ("short", 10)):
        lines = (json.dumps({"text": name[0] * size}) for _ in range(20_000 // size))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    sources = [
        Source(name, "jsonl", paths=[str(tmp_path / f"{name}.jsonl")], weight=weight)
        for name, weight in (("long", 1.0), ("short", 0.5))
    ]
    counted = {"l": 0, "s": 0}
    for document in sample(sources, seed=0):
        text = "".join(segment.text for segment in document)
        counted[text[0]] += len(text)
        if counted["l"] == 20_000:
            break
    assert 4_000 <= counted["s"] <= 6_000
