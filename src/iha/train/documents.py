"""What a source yields: documents, in segments, each with or without loss."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    text: str
    loss: bool = True  # are its tokens predicted
    markup: bool = False  # may it hold special tokens; elsewhere their names are plain text


Document = Sequence[Segment]


def plain(text: str) -> Document:
    return (Segment(text),)
