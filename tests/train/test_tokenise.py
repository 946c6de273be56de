"""Tokenizers: bytes map to themselves, and a trained one gives the text back."""

import inspect
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iha.train import tokenise
from iha.train.recipe import Tokenizer
from iha.train.segments import Segment, plain
from iha.train.tokenise import END, SPECIAL, load_tokenizer, train_tokenizer

BYTES = load_tokenizer(Tokenizer("bytes"))


@given(st.text())
def test_bytes_are_utf8_and_agree_with_the_exported_tokenizer(text):
    found = BYTES.encode(plain(text))
    assert found.tokens.tolist() == [*text.encode(errors="replace"), BYTES.end_id]
    BYTES.tokenizer.encode_special_tokens = True
    assert BYTES.tokenizer.encode(text, add_special_tokens=False).ids == found.tokens[:-1].tolist()


def test_a_trained_tokenizer_has_its_size_and_gives_text_back(tmp_path):
    text = "def f(x):\n    return x + 1  # naïve\n" * 200
    (tmp_path / "t.json").write_text(train_tokenizer([plain(text)], 300))
    tokenizer = load_tokenizer(Tokenizer("train", vocab_size=300), tmp_path / "t.json")
    assert tokenizer.size <= 300
    ids = tokenizer.encode(plain(text)).tokens[:-1].tolist()
    assert len(ids) < len(text) / 2
    assert tokenizer.tokenizer.decode(ids) == text
    assert all(tokenizer.tokenizer.token_to_id(token) is not None for token in SPECIAL)
    again = tmp_path / "again.json"
    again.write_text(train_tokenizer([plain(text)], 300))
    assert again.read_bytes() == (tmp_path / "t.json").read_bytes()


def test_a_tokenizer_file_must_exist_and_have_its_end(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json is not a tokenizer\.json"):
        load_tokenizer(Tokenizer("file", path=str(tmp_path / "none.json")))
    BYTES.tokenizer.save(str(tmp_path / "t.json"))
    assert load_tokenizer(Tokenizer("file", path=str(tmp_path / "t.json"))).end == END
    with pytest.raises(ValueError, match="'</end>' is not in the tokenizer"):
        load_tokenizer(Tokenizer("file", path=str(tmp_path / "t.json"), end="</end>"))


def test_documents_encoded_together_are_those_encoded_one_by_one(tmp_path):
    """Markup among ordinary text, empty documents, more documents than are encoded at a time."""
    (tmp_path / "t.json").write_text(train_tokenizer([plain("some words, some more words\n" * 50)], 300))
    trained = load_tokenizer(Tokenizer("train", vocab_size=300), tmp_path / "t.json")
    documents = [
        [Segment(f"words {number} {END}"), Segment(END, markup=True), Segment("more", loss=number % 2 == 0)]
        for number in range(150)
    ] + [[]]
    for tokenizer in (trained, BYTES):
        together = list(tokenizer.encode_all(documents))
        assert len(together) == len(documents)
        for document, found in zip(documents, together, strict=True):
            parts = []
            for segment in document:
                tokenizer.tokenizer.encode_special_tokens = not segment.markup
                parts += tokenizer.tokenizer.encode(segment.text, add_special_tokens=False).ids
            assert found.tokens.tolist() == [*parts, tokenizer.end_id]
            assert found.loss.tolist() == tokenizer.encode(document).loss.tolist()
        assert together[0].tokens.tolist().count(tokenizer.end_id) == 2  # the markup and the end, not the text


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "t.json"
    path.write_text(train_tokenizer([plain(inspect.getsource(string))], 400))
    return load_tokenizer(Tokenizer("train", vocab_size=400), path)


_PIECES = st.sampled_from([*"'sdm \n\t\r\f\v\x1c\x1f_0z(é\u00a0\u0085٣", "'ll", "'re", "'ve", "def", "  ", END])


@given(st.one_of(st.lists(_PIECES).map("".join), st.text(st.characters(max_codepoint=127)), st.text()))
def test_a_trained_tokenizer_gives_what_the_exported_one_gives(trained, text):
    """Words are cut here and encoded once: every kind of character at every kind of boundary, in and out of ASCII."""
    trained.tokenizer.encode_special_tokens = True
    expected = trained.tokenizer.encode(text, add_special_tokens=False).ids
    for _ in range(2):  # with the words remembered, too
        assert trained.encode(plain(text)).tokens[:-1].tolist() == expected


def test_remembered_words_are_bounded(trained, monkeypatch):
    monkeypatch.setattr(tokenise, "_REMEMBERED", 10)
    for number in range(100):
        text = f"word{number} other{number}"
        ids = trained.encode(plain(text)).tokens[:-1].tolist()
        assert trained.tokenizer.decode(ids) == text
    assert len(trained.remembered) <= 10 + 4
