"""What a source yields for a document: text in segments, each with or without loss."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    text: str
    loss: bool = True  # are its tokens predicted
    markup: bool = False  # may it hold special tokens; elsewhere their names are plain text


Segments = Sequence[Segment]  # of one document


def plain(text: str) -> Segments:
    return (Segment(text),)
