"""Scores by hand, and lm-eval's own functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.tasks.ruler.common_utils import postprocess_pred, string_match_all, string_match_part

from iha.evaluate.ruler.scoring import cleaned, judge_all, judge_part

REFERENCES = ["Denver Broncos", "The Denver Broncos", "Broncos", "broncos of Denver"]


@pytest.mark.parametrize(
    ("text", "references", "every", "part", "lm_eval"),
    [
        ("it is 1234567.", ["1234567"], 1.0, 1.0, 1.0),
        ("it is 123456", ["1234567"], 0.0, 0.0, 0.0),
        ("1, 2 and 4", ["1", "2", "3", "4"], 0.75, 1.0, 0.75),
        ("DENVER BRONCOS", REFERENCES, 0.5, 1.0, 0.5),  # case is ignored
        ("the broncos", REFERENCES, 0.25, 1.0, 0.25),  # NVIDIA: right; lm-eval: a quarter
        ("", ["x"], 0.0, 0.0, 0.0),
        ("a\x00b\tc", ["b"], 1.0, 1.0, 1.0),
    ],
)
def test_by_hand(text, references, every, part, lm_eval):
    assert judge_all(text, references).score == every
    assert judge_part(text, references).score == part
    assert judge_part(text, references).detail["lm_eval"] == lm_eval
    assert judge_all(text, references).detail["lm_eval"] == every


def test_control_characters_become_lines():
    assert cleaned("  a\x01b\x1f ") == "a\nb"


def test_what_was_found_is_kept():
    assert judge_all("b and a", ["a", "c", "b"]).answer == "a, b"
    assert judge_all("nothing", ["x"]).answer is None


def test_a_sample_without_references_is_refused():
    with pytest.raises(ValueError, match="without references"):
        judge_all("x", [])


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4))
def test_lm_eval_agrees_with_what_we_say_of_it(text, references):
    theirs = postprocess_pred([text])
    assert judge_all(text, references).score == string_match_all(theirs, [references])
    assert judge_part(text, references).detail["lm_eval"] == string_match_part(theirs, [references])
