"""What the benchmarks share: the task file with local data, and metrics out of verdicts."""

import json
from dataclasses import dataclass

import pytest

pytest.importorskip("lm_eval")

from iha.evaluate import gsm8k, math500, programs
from iha.evaluate.benchmark import GREEDY, SAMPLED, Benchmark
from iha.evaluate.protocol import Source, Verdict


@dataclass(frozen=True)
class Plain(Benchmark):
    """Judges nothing: only what all benchmarks share is tested."""


def plain(**changes):
    return Plain(**{"name": "plain", "metrics": ("EM",), "decoding": GREEDY, "task_file": "iha_gsm8k", **changes})


def test_questions_come_from_the_files_below_data(tmp_path):
    for split, numbers in (("train", range(10, 16)), ("test", range(3))):
        rows = [json.dumps({"question": f"What is {n}?", "answer": f"{n}\n#### {n}"}) for n in numbers]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    task = plain(files={"train": "train.jsonl", "test": "test.jsonl"})
    questions = task.questions(Source(data=tmp_path, limit=2))
    assert [question.reference for question in questions] == ["0\n#### 0", "1\n#### 1"]
    assert questions[0].prompt.endswith("Question: What is 0?\nAnswer:")
    with pytest.raises(ValueError, match=r"iha_gsm8k reads .*gone\.jsonl"):
        plain(files={"test": "gone.jsonl"}).questions(Source(data=tmp_path))


def test_scores_are_the_metrics_of_the_verdicts():
    verdicts = [Verdict(1.0, "7"), *[Verdict(0.0, "8")] * 3]
    assert plain(metrics=("P@1", "P@2", "Maj@4"), decoding=SAMPLED).score(verdicts) == {
        "P@1": 0.25, "P@2": pytest.approx(0.5), "Maj@4": 0.0,
    }  # fmt: skip
    with pytest.raises(NotImplementedError):
        plain().judge([], [])


def test_decoding_is_the_paper_s():
    """Greedy after pre-training, apart from Maj@5; 16 samples at temperature 0.6 after fine-tuning."""
    for task in (*gsm8k.TASKS, *math500.TASKS, *programs.TASKS):
        decoding = (task.decoding.samples, task.decoding.temperature)
        if task.name.endswith("_sft"):
            assert decoding == (16, 0.6)
        else:
            assert decoding == ((5, task.decoding.temperature) if task.name == "gsm8k_maj5" else (1, 0.0))
        assert (task.decoding.top_p, task.decoding.top_k) == (1.0, 0)
