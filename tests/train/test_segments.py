"""What the marks of a segment decide, once it is tokens."""

from iha.train.recipe import Tokenizer
from iha.train.segments import Segment, plain
from iha.train.tokenise import load_tokenizer

BYTES = load_tokenizer(Tokenizer("bytes"))


def test_plain_text_is_one_segment_predicted_and_without_markup():
    name = "<|im_end|>"
    assert BYTES.encode(plain(name)).tokens.tolist() == [*name.encode(), BYTES.end_id]
    assert BYTES.encode(plain(name)).loss.all()


def test_special_tokens_are_special_in_markup_only():
    name = "<|im_end|>"
    markup = BYTES.encode([Segment(name, markup=True)])
    text = BYTES.encode([Segment(name)])
    assert markup.tokens.tolist() == [BYTES.tokenizer.token_to_id(name), BYTES.end_id]
    assert text.tokens.tolist() == [*name.encode(), BYTES.end_id]


def test_the_end_is_predicted_when_the_last_segment_is():
    assert BYTES.encode([Segment("ab", loss=False), Segment("c")]).loss.tolist() == [False, False, True, True]
    assert BYTES.encode([Segment("a"), Segment("b", loss=False)]).loss.tolist() == [True, False, False]
