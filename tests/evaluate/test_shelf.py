import pytest
from material import bpe_tokenizer, byte_tokenizer

from iha.evaluate.protocol import Question, Source
from iha.evaluate.ruler.tasks import RulerTask
from iha.evaluate.shelf import remembered, tokenizer_digest


def test_questions_are_made_once(tmp_path):
    made = []

    def make():
        made.append(1)
        return [Question("0", "prompt\nof two lines", ["é"], 3, ("stop",), " so", {"depths": [0.5]})]

    first = remembered(tmp_path, "task", {"seed": 1}, make)
    assert remembered(tmp_path, "task", {"seed": 1}, make) == first
    assert len(made) == 1
    remembered(tmp_path, "task", {"seed": 2}, make)
    assert len(made) == 2


def test_a_damaged_file_is_named(tmp_path):
    remembered(tmp_path, "task", {}, list)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=path.name):
        remembered(tmp_path, "task", {}, list)


def test_ruler_samples_are_kept_by_tokenizer_seed_and_number(tmp_path):
    task = RulerTask("niah_single_1", 2000)
    for tokenizer, seed, limit in (
        (byte_tokenizer(), 0, 1),
        (bpe_tokenizer(), 0, 1),
        (byte_tokenizer(), 1, 1),
        (byte_tokenizer(), 0, 2),
    ):
        source = Source(limit=limit, seed=seed, tokenizer=tokenizer, cache=tmp_path)
        assert task.questions(source) == task.questions(source) == task.generate(source)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_tokenizer_is_known_by_what_it_does():
    assert tokenizer_digest(byte_tokenizer()) == tokenizer_digest(byte_tokenizer())
    assert len({tokenizer_digest(t) for t in (byte_tokenizer(), byte_tokenizer(bos=True), bpe_tokenizer())}) == 3
