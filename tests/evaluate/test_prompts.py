"""A prompt is what the model reads: leading special tokens, the chat template, and no end in the middle."""

import pytest
from material import byte_tokenizer

from iha.evaluate.prompts import prompt_text, prompt_tokens

CHAT = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"


def test_special_tokens_lead_and_an_appended_end_is_dropped():
    tokenizer = byte_tokenizer(bos=True)
    assert tokenizer("ab")["input_ids"][-1] == tokenizer.eos_token_id
    found = prompt_tokens(tokenizer, "four", " five")
    assert found[0] == tokenizer.bos_token_id
    assert tokenizer.decode(found[1:]) == "four five"
    assert prompt_tokens(byte_tokenizer(), "four", " five") == found[1:]


def test_an_end_that_the_text_itself_has_stays():
    tokenizer = byte_tokenizer()
    assert prompt_tokens(tokenizer, "a</s>")[-1] == tokenizer.eos_token_id


def test_chats_put_the_prefix_after_the_template():
    tokenizer = byte_tokenizer(bos=True)
    tokenizer.chat_template = CHAT
    assert prompt_text(tokenizer, "four", " five", chat=True) == "[four]> five"
    assert len(prompt_tokens(tokenizer, "four", " five", chat=True)) == len("[four]> five")  # the template has the <s>
    assert prompt_text(tokenizer, "four", " five") == "four five"
    with pytest.raises(ValueError, match="no chat template"):
        prompt_text(byte_tokenizer(), "four", chat=True)
