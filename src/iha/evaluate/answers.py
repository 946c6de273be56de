"""What a model's text gives as its answer: a number, what is in the last box, a program."""

import re

# Reasoning models think before these; only what follows is the answer (OpenThoughts, DeepSeek-R1, Qwen).
END_OF_THOUGHT = ("<|end_of_thought|>", "</think>")

_NUMBER = re.compile(r"-?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")


def after_thought(text: str) -> str:
    for mark in END_OF_THOUGHT:
        text = text.rpartition(mark)[2]
    return text


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{...}, with balanced braces."""
    for start in reversed([match.end() for match in re.finditer(r"\\f?boxed\s*\{", text)]):
        depth = 1
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0) if text[end - 1] != "\\" else 0
            if depth == 0:
                return text[start:end]
    return None


def plain_number(text: str) -> str:
    """One spelling per number: no $, thousands separators, leading or trailing zeros."""
    sign, digits = ("-" if "-" in text else ""), re.sub(r"[$,\s-]", "", text)
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    digits = f"{whole}.{fraction}" if fraction else whole
    return digits if digits == "0" else sign + digits


def final_number(text: str) -> str | None:
    """The number after the first "####" (GSM8K's own mark), else the last in the last box, else the text's last."""
    text = after_thought(text)
    marked = re.search(r"####[^\n]*?(" + _NUMBER.pattern + ")", text)
    if marked:
        return plain_number(marked[1])
    for place in (last_boxed(text) or "", text):
        numbers = _NUMBER.findall(place)
        if numbers:
            return plain_number(numbers[-1])
    return None


def program(text: str) -> str:
    """The last fenced block of the answer if it has one (a closing fence may be missing), else all of it."""
    text = after_thought(text)
    blocks = re.findall(r"```[\w+-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", text, re.DOTALL)
    return blocks[-1] if blocks else text
