"""GSM8K: grade-school arithmetic, one number as the answer."""

import re
from collections.abc import Sequence

from iha.evaluate.answers import final_number, plain_number
from iha.evaluate.benchmark import GREEDY, SAMPLED, Benchmark
from iha.evaluate.protocol import Decoding, Question, Verdict

# lm-eval's two filters, and what its exact_match ignores: its scores are kept beside ours.
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = (r",", r"\$", r"(?s).*#### ", r"\.$")


class GSM8K(Benchmark):
    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        return [
            [judge(question.reference, text) for text in texts]
            for question, texts in zip(questions, samples, strict=True)
        ]


def gold(reference: str) -> str:
    """GSM8K's answers are a derivation and, after "####", a number."""
    _, mark, number = reference.rpartition("####")
    if not mark:
        raise ValueError(f"not an answer in GSM8K's format, it has no '####': {reference!r}")
    return plain_number(number)


def judge(reference: str, text: str) -> Verdict:
    answer = final_number(text)
    detail = {
        "lm_eval_strict": _lm_eval(reference, text, _STRICT),
        "lm_eval_flexible": _lm_eval(reference, text, _FLEXIBLE),
    }
    return Verdict(float(answer == gold(reference)), answer, detail)


def _lm_eval(reference: str, text: str, pattern: re.Pattern[str]) -> int:
    """lm-eval's gsm8k: the first marked number (strict) or the last number of any kind (flexible), as strings."""
    matches = pattern.findall(text)
    chosen = "[invalid]"
    if matches:
        match = matches[0] if pattern is _STRICT else matches[-1]
        chosen = (match if isinstance(match, str) else next(filter(None, match))).strip()
    for ignored in _IGNORED:
        chosen, reference = re.sub(ignored, "", chosen), re.sub(ignored, "", reference)
    return int(chosen.lower() == reference.lower())


_FEW_SHOT = {"train": "gsm8k/train.jsonl", "test": "gsm8k/test.jsonl"}
_ZERO_SHOT = {"test": "gsm8k/test.jsonl"}

TASKS = [
    GSM8K("gsm8k", ("EM",), GREEDY, "iha_gsm8k", _FEW_SHOT),
    GSM8K("gsm8k_maj5", ("Maj@5",), Decoding(samples=5, temperature=0.6), "iha_gsm8k_maj5", _FEW_SHOT),
    GSM8K("gsm8k_sft", ("P@1", "Maj@16"), SAMPLED, "iha_gsm8k_sft", _ZERO_SHOT),
]
