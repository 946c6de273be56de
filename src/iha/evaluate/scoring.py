"""One question's metrics from the verdicts on its samples: EM, P@k (unbiased), Maj@k (the tie rule is here)."""

import math
from collections import Counter
from collections.abc import Sequence

from iha.evaluate.protocol import Verdict


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The chance that at least one of k samples drawn without replacement passed: unbiased for k fresh samples.

    Chen et al. 2021, "Evaluating large language models trained on code", equation 1.
    """
    if not 0 <= passed <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs 0 <= passed <= samples and 1 <= k <= samples, got {passed} of {samples}")
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def majority(answers: Sequence[str | None]) -> int | None:
    """The index of the first sample with the most frequent answer; None when there is no answer at all.

    Samples without an answer do not vote. Of equally frequent answers the one that was sampled first wins: samples
    are independent, so this is a fair draw among the tied answers, and it is reproducible.
    """
    votes = Counter(answer for answer in answers if answer is not None)  # in order of first appearance
    if not votes:
        return None
    return answers.index(max(votes, key=votes.__getitem__))  # max keeps the first of equals


def metric(name: str, verdicts: Sequence[Verdict]) -> float:
    """EM of one greedy text, P@k or Maj@k of the samples of one question.

    P@k takes all samples, Maj@k the first k. A verdict votes for `detail["vote"]` where that is given (the same answer
    written in several ways), else for its answer.
    """
    kind, _, number = name.partition("@")
    if kind == "EM" and not number and len(verdicts) == 1:
        return verdicts[0].score
    if kind == "P" and number.isdigit():
        return pass_at_k(len(verdicts), sum(verdict.score == 1 for verdict in verdicts), int(number))
    if kind == "Maj" and number.isdigit() and 1 <= int(number) <= len(verdicts):
        voters = verdicts[: int(number)]
        winner = majority([verdict.detail.get("vote", verdict.answer) for verdict in voters])
        return 0.0 if winner is None else voters[winner].score
    raise ValueError(f"no metric {name!r} for {len(verdicts)} samples: there are EM (of one), P@k and Maj@k")
