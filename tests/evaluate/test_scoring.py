import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iha.evaluate.protocol import Verdict
from iha.evaluate.scoring import majority, metric, pass_at_k


@pytest.mark.parametrize("samples", range(1, 9))
def test_pass_at_k_is_the_mean_over_all_choices_of_k_samples(samples):
    for passed in range(samples + 1):
        results = [1] * passed + [0] * (samples - passed)
        for k in range(1, samples + 1):
            choices = list(itertools.combinations(results, k))
            assert pass_at_k(samples, passed, k) == pytest.approx(sum(map(max, choices)) / len(choices), abs=1e-15)


def test_pass_at_k_by_hand():
    assert pass_at_k(16, 1, 10) == pytest.approx(10 / 16)
    assert pass_at_k(16, 4, 1) == 0.25
    assert pass_at_k(16, 7, 10) == 1.0  # nine failures cannot fill ten places
    assert pass_at_k(200, 3, 100) == pytest.approx(1 - (100 * 99 * 98) / (200 * 199 * 198))


def test_pass_at_k_is_the_papers_product():
    """Chen et al. compute 1 - prod(1 - k / i) for i from n - c + 1 to n."""
    for n, c, k in [(16, 5, 10), (100, 7, 10), (50, 50, 1), (50, 0, 25)]:
        product = 1.0
        for i in range(n - c + 1, n + 1):
            product *= 1 - k / i
        assert pass_at_k(n, c, k) == pytest.approx(1 - max(product, 0.0) if n - c >= k else 1.0)


def test_pass_at_k_is_unbiased():
    """Its mean over all outcomes of n independent samples is the chance that one of k fresh samples passes."""
    n, k, p = 6, 4, 0.3
    outcomes = itertools.product([0, 1], repeat=n)
    mean = sum(p ** sum(o) * (1 - p) ** (n - sum(o)) * pass_at_k(n, sum(o), k) for o in outcomes)
    assert mean == pytest.approx(1 - (1 - p) ** k)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["7", "8", "8"], 1),
        (["7", "8"], 0),  # of equals, the first sampled
        (["9", "7", "8", "8", "7"], 1),
        ([None, None, "3"], 2),  # no answer, no vote
        ([None, "3", "4", "4", None, "3"], 1),
        ([None, None], None),
        ([], None),
    ],
)
def test_majority(answers, winner):
    assert majority(answers) == winner


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=8))
def test_majority_wins_the_count_and_came_first(answers):
    winner = majority(answers)
    if winner is None:
        assert set(answers) <= {None}
        return
    count = {a: answers.count(a) for a in answers if a is not None}
    assert count[answers[winner]] == max(count.values())
    rivals = [answers.index(a) for a in count if count[a] == max(count.values())]
    assert winner == min(rivals)


def verdicts(*pairs):
    return [Verdict(score, answer) for answer, score in pairs]


def test_metrics_of_one_question():
    samples = verdicts(("1", 0), ("2", 1), ("2", 1), ("1", 0), ("1", 0))
    assert metric("P@1", samples) == pytest.approx(0.4)
    assert metric("P@4", samples) == 1.0
    assert metric("Maj@5", samples) == 0.0
    assert metric("Maj@3", samples) == 1.0  # of the first three
    assert metric("EM", samples[1:2]) == 1.0
    assert metric("Maj@2", verdicts((None, 0), (None, 0))) == 0.0


def test_the_same_answer_in_other_words_votes_together():
    half = [Verdict(1, "1/2", {"vote": "1/2"}), Verdict(0, "3", {"vote": "3"}), Verdict(1, "0.5", {"vote": "1/2"})]
    assert metric("Maj@3", half) == 1.0


@pytest.mark.parametrize("name", ["EM", "Maj@6", "Maj", "F1", "P@"])
def test_unknown_metrics_are_refused(name):
    with pytest.raises(ValueError, match="no metric"):
        metric(name, verdicts(("1", 0), ("2", 1)))
