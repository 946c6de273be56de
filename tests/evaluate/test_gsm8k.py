import pytest
from published import DATA, needs_data, rows

from iha.evaluate import gsm8k
from iha.evaluate.protocol import Question, Source, Verdict

GOLD = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72"
TEXTS = [
    "She sold 72 clips.\n#### 72",
    "#### 72.",
    "#### 7,2",
    "#### $72",
    "####72",
    "The answer is 72.",
    "The answer is $72.00",
    "#### 71\n#### 72",
    "#### 72\nQuestion: and 5?\n#### 5",
    "72 or 73",
    "no number",
    "",
    "#### seventy-two",
    "\\boxed{72}",
    "-72",
]


def test_judged_by_hand():
    scores = [gsm8k.judge(GOLD, text).score for text in TEXTS]
    assert scores == [1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0]


def test_lm_evals_scores_are_lm_evals():
    """Its own filters and its own exact_match on its own gsm8k, beside ours."""
    pytest.importorskip("lm_eval")
    from lm_eval.api.metrics import exact_match_fn
    from lm_eval.filters.extraction import RegexFilter

    filters = {
        "lm_eval_strict": RegexFilter("#### (\\-?[0-9\\.\\,]+)"),
        "lm_eval_flexible": RegexFilter("(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1),
    }
    ignored = [",", "\\$", "(?s).*#### ", "\\.$"]
    for text in TEXTS:
        for name, lm_eval_filter in filters.items():
            ((extracted,),) = lm_eval_filter.apply([[text]], [{}])
            theirs = exact_match_fn(
                predictions=[extracted], references=[GOLD], regexes_to_ignore=ignored, ignore_case=True
            )
            assert gsm8k.judge(GOLD, text).detail[name] == theirs["exact_match"], (name, text)


def test_majority_of_the_samples():
    task = next(task for task in gsm8k.TASKS if task.name == "gsm8k_maj5")
    question = Question("0", "", GOLD, 8)
    (verdicts,) = task.judge([question], [["#### 5", "#### 72", "so 72.0", "none", "#### 5"]])
    assert [verdict.answer for verdict in verdicts] == ["5", "72", "72", None, "5"]
    assert task.score(verdicts) == {"Maj@5": 0.0}  # a tie: 5 came first
    assert task.score([*verdicts[:4], Verdict(1, "72")]) == {"Maj@5": 1.0}


def test_a_reference_in_another_format_is_refused():
    with pytest.raises(ValueError, match="no '####'"):
        gsm8k.judge("72", "72")


@needs_data
def test_all_published_answers_are_found():
    """With lm-eval's two rules as well, and after the derivation of a reasoning model."""
    for row in rows("gsm8k/train.jsonl") + rows("gsm8k/test.jsonl"):
        verdict = gsm8k.judge(row["answer"], row["answer"])
        assert (verdict.score, *verdict.detail.values()) == (1, 1, 1), row
        assert (
            gsm8k.judge(row["answer"], f"<think>7 #### 8</think> \\boxed{{{row['answer'].split('#### ')[1]}}}").score
            == 1
        )


@needs_data
def test_prompts():
    pytest.importorskip("lm_eval")
    five_shot, _, zero_shot = (task.questions(Source(data=DATA, limit=2)) for task in gsm8k.TASKS)
    train, test = rows("gsm8k/train.jsonl"), rows("gsm8k/test.jsonl")
    examples = [f"Question: {row['question']}\nAnswer: {row['answer']}\n\n" for row in train[:5]]
    for question, row in zip(five_shot, test[:2], strict=True):
        assert question.prompt == "".join(examples) + f"Question: {row['question']}\nAnswer:"
        assert question.reference == row["answer"]
    assert zero_shot[1].prompt.startswith(test[1]["question"] + "\n")
    assert "boxed" in zero_shot[1].prompt
