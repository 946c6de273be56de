"""NVIDIA's two metrics, and lm-eval's where it scores the same text differently. Both ignore case."""

import re

from iha.evaluate.protocol import Verdict

_CONTROL = re.compile(r"[\x00-\x1f]")


def cleaned(text: str) -> str:
    return _CONTROL.sub("\n", text.strip()).strip()


def found(text: str, references: list[str]) -> list[bool]:
    if not references:
        raise ValueError("a RULER sample without references cannot be scored")
    text = cleaned(text).lower()
    return [reference.lower() in text for reference in references]


def judge_all(text: str, references: list[str]) -> Verdict:
    """The share of references that occur in the text: every task but question answering. lm-eval agrees."""
    hits = found(text, references)
    return _verdict(sum(hits) / len(hits), sum(hits) / len(hits), hits, references)


def judge_part(text: str, references: list[str]) -> Verdict:
    """1 if any reference occurs. lm-eval takes the share here too: one hit among four annotators' answers is 0.25."""
    hits = found(text, references)
    return _verdict(float(any(hits)), sum(hits) / len(hits), hits, references)


def _verdict(score: float, lm_eval: float, hits: list[bool], references: list[str]) -> Verdict:
    answer = ", ".join(reference for reference, hit in zip(references, hits, strict=True) if hit)
    return Verdict(score, answer or None, {"lm_eval": lm_eval})
