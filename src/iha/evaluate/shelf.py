"""A compressed disk cache of generated questions, keyed by what they depend on."""

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iha.evaluate.protocol import Question
from iha.records import write_bytes


def remembered(
    folder: Path, name: str, depends_on: dict[str, Any], make: Callable[[], list[Question]]
) -> list[Question]:
    """The result of `make()`, cached under its dependencies."""
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:20]
    path = folder / f"{name}-{key}.jsonl.gz"
    if path.is_file():
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                return [Question.from_json(json.loads(line)) for line in file]
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged; delete it and it will be made again ({error})") from error
    questions = make()
    lines = "".join(json.dumps(question.as_json(), ensure_ascii=False) + "\n" for question in questions)
    write_bytes(path, gzip.compress(lines.encode(), compresslevel=1, mtime=0))
    return questions


def tokenizer_digest(tokenizer: Any) -> str:
    """A hash of everything that decides how the tokenizer splits a text."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None:
        content = fast.to_str()
    else:
        content = json.dumps([type(tokenizer).__qualname__, sorted(tokenizer.get_vocab().items())])
    return hashlib.sha256(f"{content}{tokenizer.all_special_tokens}".encode()).hexdigest()
