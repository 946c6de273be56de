"""A question as the tokens that the model is given: the one definition of a prompt's length."""

from typing import Any


def prompt_text(tokenizer: Any, prompt: str, prefix: str = "", chat: bool = False) -> str:
    """The prompt (as one user message when `chat`), followed by the answer prefix."""
    if not chat:
        return prompt + prefix
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("this tokenizer has no chat template")
    messages = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)) + prefix


def prompt_tokens(tokenizer: Any, prompt: str, prefix: str = "", chat: bool = False) -> list[int]:
    """What the model reads, with the leading special tokens of the tokenizer or of the chat template.

    Some tokenizers append an end-of-text token to every text. A prompt is to be continued, so that token is dropped.
    """
    text = prompt_text(tokenizer, prompt, prefix, chat)
    ids = list(tokenizer(text, add_special_tokens=not chat)["input_ids"])
    if ids and ids[-1] == tokenizer.eos_token_id and not text.endswith(str(tokenizer.eos_token)):
        return ids[:-1]
    return ids
