"""Measurements against models that know the answers, and of models that were really trained, a little."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from iha.experiment import measure
from iha.experiment.measure import Settings, measure_all, retrieval, word_problems
from iha.train.tokenise import END, TextTokenizer, byte_tokenizer

FEW = {"tasks": ("single", "pairs-all", "hops-2"), "samples": 2, "puzzles": 2, "problems": 2}


class Oracle(torch.nn.Module):
    """The next token of the row, with probability one, up to a number of tokens; beyond, the one after that."""

    def __init__(self, window=10**6):
        super().__init__()
        self.weight, self.window = torch.nn.Parameter(torch.zeros(())), window

    def forward(self, input_ids, use_cache):
        following = torch.roll(input_ids, -1, 1)
        following[:, self.window :] += 1
        return type("Output", (), {"logits": torch.nn.functional.one_hot(following, 512).float()})


def test_retrieval_by_length():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END)
    text_tokenizer = TextTokenizer(byte_tokenizer(), None, is_bytes=True)
    found = retrieval(Oracle(1000), tokenizer, text_tokenizer, Settings((300, 900, 1500, 2500), **FEW))
    assert found["retrieval"]["single"] == {"900": 1.0, "1500": 0.0, "2500": 0.0}
    assert found["retrieval"]["pairs-all"] == {"300": 1.0, "900": 1.0, "1500": 0.0, "2500": 0.0}
    assert found["left_out"].keys() == {"single at 300"}


def test_word_problems_are_scored_as_gsm8k(monkeypatch):
    class Engine:
        """Three of the sixteen samples of an even problem are right, ten of an odd one; the others do not agree."""

        def __init__(self, *_, **__):
            pass

        def batches(self, questions, _):
            return [[index] for index in range(len(questions))]

        def answer(self, questions, decoding, _):
            (question,) = questions
            right = 3 if int(question.id) % 2 == 0 else 10
            wrong = ["\n#### 1000", "\n#### 1001"] if right == 10 else ["\n#### 1000"]
            return [[question.reference] * right + (wrong * 16)[: decoding.samples - right]]

    monkeypatch.setattr(measure, "HuggingFaceEngine", Engine)
    found = word_problems(None, None, Settings(problems=10))
    assert found["metrics"]["P@1"] == pytest.approx(100 * (3 + 10) / 32)
    assert found["metrics"]["Maj@16"] == pytest.approx(50.0)
    assert set(found["by_steps"]) <= {"1", "2", "3"}


@pytest.mark.slow
def test_finished_runs_are_measured_once(little):
    settings = Settings((256, 600), **FEW)
    names = ["pretrain-iha-s0", "tune-iha-s0"]
    records = measure_all(little.records, little.runs, settings, command="iha experiment measure", names=names)
    by_phase = {record.config["phase"]: record.results for record in records}
    assert set(by_phase["pretrain"]) == {"puzzles", "retrieval", "left_out"}
    assert set(by_phase["tune"]) == {"puzzles", "word_problems"}
    assert 0 <= by_phase["tune"]["word_problems"]["metrics"]["P@1"] <= 100
    again = measure_all(little.records, little.runs, settings, command="another", names=["tune-iha-s0"])
    assert again[0].command == "iha experiment measure"


def test_what_cannot_be_measured_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no run of .* has an export"):
        measure_all(tmp_path, tmp_path, Settings(), command="iha")
    with pytest.raises(ValueError, match="pretrain-iha-s0: no record in"):
        measure_all(tmp_path, tmp_path, Settings(), command="iha", names=["pretrain-iha-s0"])
    with pytest.raises(ValueError, match="tasks: 'nothing' is not one of single"):
        Settings(tasks=("nothing",))
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        Settings(samples=0)
