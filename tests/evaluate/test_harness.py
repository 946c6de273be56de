import json

import pytest

from iha.evaluate import harness
from iha.evaluate.protocol import Source

TASK = """
task: sums
dataset_path: nobody/nothing
output_type: generate_until
training_split: train
fewshot_split: train
test_split: test
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: "{{a}}"
num_fewshot: 2
generation_kwargs: {until: ["Q:", "\\n"], do_sample: false, max_gen_toks: 7}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "sums.yaml").write_text(TASK)
    for split, numbers in (("train", range(10, 20)), ("test", range(5))):
        rows = [json.dumps({"q": f"{n} + {n}", "a": str(2 * n)}) for n in numbers]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    return tmp_path


def files(place):
    return {split: place / f"{split}.jsonl" for split in ("train", "test")}


def test_questions_are_the_requests_of_lm_eval(place):
    questions = harness.questions("sums", Source(limit=3, seed=1), include=place, data_files=files(place))
    assert [q.id for q in questions] == ["0", "1", "2"]
    first = questions[0]
    assert first.prompt.endswith("Q: 0 + 0\nA:")
    assert first.prompt.count("Q: ") == 3  # two examples before it, with their answers
    assert (first.reference, first.stop, first.max_new_tokens) == ("0", ("Q:", "\n"), 7)
    assert first.meta["doc"] == {"q": "0 + 0", "a": "0"}


def test_the_seed_chooses_the_examples_and_nothing_else_does(place):
    def prompts(seed):
        return [q.prompt for q in harness.questions("sums", Source(seed=seed), include=place, data_files=files(place))]

    assert prompts(1) == prompts(1)
    assert prompts(1) != prompts(2)


def test_overrides_change_the_task(place):
    none = harness.questions("sums", Source(), include=place, data_files=files(place), overrides={"num_fewshot": 0})
    assert none[4].prompt == "Q: 4 + 4\nA:"


def test_a_prefix_of_the_answer_stands_apart_from_the_prompt(place):
    (place / "sums.yaml").write_text(TASK + 'gen_prefix: "The sum is"\n')
    question = harness.questions("sums", Source(limit=1), include=place, data_files=files(place))[0]
    assert question.prefix == "The sum is"
    assert not question.prompt.endswith(question.prefix)


def test_missing_things_are_named(place, monkeypatch):
    with pytest.raises(ValueError, match="no lm-eval task 'products'"):
        harness.load("products", include=place)
    with pytest.raises(ValueError, match=r"gone\.jsonl"):
        harness.load("sums", include=place, data_files={"test": place / "gone.jsonl"})

    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(ValueError, match=r"--data DIR \(no network\)"):
        harness.load("sums", include=place)
