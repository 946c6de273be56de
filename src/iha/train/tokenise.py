"""Text to tokens. Every tokenizer here is one of the package `tokenizers`, and is exported with the model."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iha.train.chat import FORMATS
from iha.train.recipe import Tokenizer as Settings
from iha.train.segments import Segment, Segments

END = "<|endoftext|>"
SPECIAL = (END, *(token for style in FORMATS.values() for token in style.tokens))  # of tokenizers made here
_USUAL_ENDS = (END, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[SEP]")
_SAMPLE = 8_000_000  # characters that a tokenizer is trained on
_TOGETHER = 64  # documents that are encoded at a time
_REMEMBERED = 1 << 17  # words whose tokens are remembered
# How ByteLevel of `tokenizers` cuts ASCII text into words (GPT-2's pattern, with its classes of Unicode written out).
_WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)


@dataclass(frozen=True)
class Encoded:
    tokens: NDArray[np.int64]
    loss: NDArray[np.bool_]  # of each token: is it predicted


class TextTokenizer:
    """Segments to token ids, ended by the end token.

    `is_bytes`: made by `byte_tokenizer`. `is_trained`: by `train_tokenizer`.
    """

    def __init__(self, tokenizer: Any, end: str | None, *, is_bytes: bool = False, is_trained: bool = False) -> None:
        self.tokenizer = tokenizer
        self.is_bytes, self.is_trained = is_bytes, is_trained
        self.remembered: dict[str, list[int]] = {}  # tokens of words
        usual = [token for token in _USUAL_ENDS if tokenizer.token_to_id(token) is not None]
        if end is None and not usual:
            raise ValueError(
                f"data.tokenizer.end: none of {', '.join(_USUAL_ENDS)} is in the tokenizer; name its end token"
            )
        self.end = end or usual[0]
        if tokenizer.token_to_id(self.end) is None:
            raise ValueError(f"data.tokenizer.end: {self.end!r} is not in the tokenizer")
        self.end_id: int = tokenizer.token_to_id(self.end)
        self.size: int = tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, document: Segments) -> Encoded:
        return next(self.encode_all([document]))

    def encode_all(self, documents: Iterable[Segments]) -> Iterator[Encoded]:
        """Documents in order, some of them at a time: the package encodes those on all cores."""
        remaining = iter(documents)
        while some := list(islice(remaining, _TOGETHER)):
            ids = iter(self._ids([segment for document in some for segment in document]))
            for document in some:
                yield self._joined(document, list(islice(ids, len(document))))

    def _joined(self, document: Segments, ids: list[NDArray[np.int64]]) -> Encoded:
        loss = [np.full(len(part), segment.loss) for part, segment in zip(ids, document, strict=True)]
        end = bool(document) and document[-1].loss
        return Encoded(
            np.concatenate([*ids, np.array([self.end_id])]).astype(np.int64), np.concatenate([*loss, np.array([end])])
        )

    def _ids(self, segments: list[Segment]) -> list[NDArray[np.int64]]:
        if self.is_bytes and not any(segment.markup for segment in segments):
            return [np.frombuffer(s.text.encode(errors="replace"), np.uint8).astype(np.int64) for s in segments]
        groups: dict[tuple[bool, bool], list[int]] = {}
        for number, segment in enumerate(segments):
            by_word = self.is_trained and not segment.markup and segment.text.isascii()
            groups.setdefault((segment.markup, by_word), []).append(number)
        found: dict[int, NDArray[np.int64]] = {}
        for (markup, by_word), numbers in groups.items():
            # In ordinary text the name of a special token is plain text, so data cannot end a turn or a document.
            self.tokenizer.encode_special_tokens = not markup
            encode = self._word_by_word if by_word else self._encoded
            found |= zip(numbers, encode([segments[number].text for number in numbers]), strict=True)
        return [found[number] for number in range(len(segments))]

    def _encoded(self, texts: list[str]) -> list[NDArray[np.int64]]:
        encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)  # without places in the text
        return [np.array(one.ids, np.int64) for one in encoded]

    def _word_by_word(self, texts: list[str]) -> list[NDArray[np.int64]]:
        """The same, every word once: the package cuts text four times as slowly as it would be read here."""
        cut = [_WORD.findall(text) for text in texts]
        words = set(chain.from_iterable(cut))
        if len(self.remembered) > _REMEMBERED:
            self.remembered.clear()
        new = list(words.difference(self.remembered))
        self.remembered |= zip(new, (ids.tolist() for ids in self._encoded(new)), strict=True)
        return [np.fromiter(chain.from_iterable(map(self.remembered.__getitem__, text)), np.int64) for text in cut]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.tokenizer.to_str()}{self.end}".encode()).hexdigest()[:16]

    def require(self, tokens: Iterable[str], why: str) -> None:
        for token in tokens:
            if self.tokenizer.token_to_id(token) is None:
                raise ValueError(f"{why} needs the token {token!r}, which the tokenizer does not have")


def byte_tokenizer() -> Any:
    """Token b is byte b; then the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    names = _byte_names()
    tokenizer = Tokenizer(models.BPE({name: byte for byte, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


def load_tokenizer(settings: Settings, saved: Path | None = None) -> TextTokenizer:
    """The recipe's tokenizer; `saved` is the one that an earlier run trained here."""
    from tokenizers import Tokenizer

    match settings.kind:
        case "bytes":
            return TextTokenizer(byte_tokenizer(), settings.end, is_bytes=True)
        case "file" | "train":
            path = Path(settings.path or "") if settings.kind == "file" else saved
            try:
                return TextTokenizer(Tokenizer.from_file(str(path)), settings.end, is_trained=settings.kind == "train")
            except ValueError:
                raise
            except Exception as error:  # tokenizers raises bare Exception
                raise ValueError(f"data.tokenizer: {path} is not a tokenizer.json: {error}") from error
        case "hub":
            try:
                return TextTokenizer(Tokenizer.from_pretrained(str(settings.name)), settings.end)
            except ValueError:
                raise
            except Exception as error:  # network and Hub errors of many kinds, all bare
                raise ValueError(f"data.tokenizer.name: {settings.name!r} cannot be loaded: {error}") from error
    raise ValueError(f"data.tokenizer.kind {settings.kind!r} is not known")


def train_tokenizer(documents: Iterable[Segments], vocab_size: int) -> str:
    """Byte-level BPE, trained on a sample, as a tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_texts(documents), trainer)
    return tokenizer.to_str()


def _texts(documents: Iterable[Segments]) -> Iterator[str]:
    seen = 0
    for segment in (segment for document in documents for segment in document if not segment.markup):
        yield segment.text
        seen += len(segment.text)
        if seen >= _SAMPLE:
            return


def _byte_names() -> list[str]:
    """GPT-2's printable names of the 256 bytes, which the ByteLevel steps of `tokenizers` go by."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    names, others = {byte: chr(byte) for byte in printable}, 0
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(256 + others)
            others += 1
    return [names[byte] for byte in range(256)]
