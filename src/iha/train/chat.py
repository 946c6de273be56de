"""Conversations as documents: only the assistant's words and the ends of its turns have loss."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iha.train.segments import Segment, Segments

ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}


@dataclass(frozen=True)
class ChatFormat:
    """How a turn is written: before the content, and after it."""

    before: str  # with {role}
    after: str
    tokens: tuple[str, ...]  # special tokens that it needs

    def template(self) -> str:
        """The same in Jinja, for `tokenizer.apply_chat_template` and `iha generate --chat`."""
        before, after = ("'" + text.replace("\n", "\\n") + "'" for text in (self.before, self.after))
        role = before.replace("{role}", "' + message['role'] + '")
        opening = before.replace("{role}", "assistant")
        return (
            f"{{% for message in messages %}}{{{{ {role} + message['content'] + {after} }}}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{{{{ {opening} }}}}{{% endif %}}"
        )


FORMATS = {
    "chatml": ChatFormat("<|im_start|>{role}\n", "<|im_end|>\n", ("<|im_start|>", "<|im_end|>")),
    "llama3": ChatFormat(
        "<|start_header_id|>{role}<|end_header_id|>\n\n",
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
}


def conversation(row: Mapping[str, Any], format_name: str) -> Segments:
    """A row as a document: OpenThoughts' {system, conversations: [{from, value}]}, or {messages: [{role, content}]}."""
    style = FORMATS[format_name]
    segments: list[Segment] = []
    for role, content in _turns(row):
        assistant = role == "assistant"
        segments.append(Segment(style.before.format(role=role), loss=False, markup=True))
        segments.append(Segment(content, loss=assistant))
        segments.append(Segment(style.after, loss=assistant, markup=True))
    if not any(segment.loss for segment in segments):
        raise ValueError(f"a conversation without an assistant's turn: {_shown(row)}")
    return segments


def _turns(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    turns = row.get("messages", row.get("conversations"))
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"a conversation needs `messages` or `conversations`: {_shown(row)}")
    if row.get("system"):
        yield "system", str(row["system"])
    for turn in turns:
        role = turn.get("role", turn.get("from")) if isinstance(turn, Mapping) else None
        content = turn.get("content", turn.get("value")) if isinstance(turn, Mapping) else None
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(f"a turn needs a role among {', '.join(ROLES)} and text: {_shown(turn)}")
        yield ROLES[role], content


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:200]
