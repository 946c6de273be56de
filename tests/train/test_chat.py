"""Conversations: the assistant's tokens have loss and nothing else; the template writes the same text."""

import json
import os
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from iha.train.chat import FORMATS, conversation
from iha.train.recipe import Tokenizer
from iha.train.tokenise import byte_tokenizer, load_tokenizer

ROW = {
    "system": "Think.",
    "conversations": [
        {"from": "user", "value": "1+1? <|im_end|>"},
        {"from": "assistant", "value": "2"},
        {"from": "user", "value": "sure?"},
        {"from": "assistant", "value": "yes"},
    ],
}
MESSAGES = [
    {"role": "system", "content": "Think."},
    {"role": "user", "content": "1+1? <|im_end|>"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "sure?"},
    {"role": "assistant", "content": "yes"},
]
DATA = Path(os.environ.get("IHA_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
SAMPLE = DATA / "sft" / "openthoughts_style_apache2.jsonl"


@pytest.mark.parametrize("name", FORMATS)
def test_both_layouts_are_one_conversation(name):
    assert conversation(ROW, name) == conversation({"messages": MESSAGES}, name)


def test_loss_is_on_the_assistants_words_and_where_they_end():
    segments = conversation(ROW, "chatml")
    assert "".join(s.text for s in segments if s.loss) == "2<|im_end|>\nyes<|im_end|>\n"
    encoded = load_tokenizer(Tokenizer("bytes")).encode(segments)
    end = byte_tokenizer().token_to_id("<|im_end|>")
    predicted = encoded.tokens[encoded.loss].tolist()
    assert predicted == [ord("2"), end, 10, *b"yes", end, 10, byte_tokenizer().token_to_id("<|endoftext|>")]


@pytest.mark.parametrize("name", FORMATS)
def test_the_exported_template_writes_what_was_trained_on(name):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), chat_template=FORMATS[name].template())
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    assert text == "".join(segment.text for segment in conversation(ROW, name))
    opened = tokenizer.apply_chat_template(MESSAGES[:2], tokenize=False, add_generation_prompt=True)
    assert text.startswith(opened)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "needs `messages` or `conversations`"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "a turn needs a role among"),
        ({"messages": [{"role": "user", "content": 3}]}, "and text"),
        ({"messages": [{"role": "user", "content": "a"}]}, "without an assistant's turn"),
        ({"messages": ["a"]}, "a turn needs a role"),
    ],
)
def test_rows_that_are_no_conversation_are_named(row, message):
    with pytest.raises(ValueError, match=message):
        conversation(row, "chatml")


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the sample of OpenThoughts' layout is not here")
def test_openthoughts_rows_are_conversations():
    rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    learned = ["".join(s.text for s in conversation(row, "chatml") if s.loss) for row in rows]
    assert sum("<|begin_of_thought|>" in text for text in learned) > 100
