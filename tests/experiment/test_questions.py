"""Puzzles as questions: the true answer is right, another is not, and nothing gives the answer away."""

import pytest

from iha.evaluate.protocol import Source
from iha.experiment.questions import PuzzleTask
from iha.train.puzzles import PUZZLES, generate


@pytest.mark.parametrize("name", PUZZLES)
def test_the_true_continuation_is_right_and_another_is_not(name):
    task = PuzzleTask(name)
    questions = task.questions(Source(limit=5, seed=3))
    for index, question in enumerate(questions):
        text = generate(name, "test", 3, index).text
        assert text.startswith(question.prompt)
        rest = text.removeprefix(question.prompt)
        for stop in question.stop:
            rest = rest.partition(stop)[0]
        ((right,),) = task.judge([question], [[rest]])
        assert (right.score, right.answer) == (1.0, question.reference)
        ((wrong,),) = task.judge([question], [[rest.replace(question.reference, "nothing")]])
        assert wrong.score == 0.0
        assert task.score([right]) == {"EM": 1.0}


def test_a_solution_without_its_mark_has_no_answer():
    task = PuzzleTask("arithmetic")
    (question,) = task.questions(Source(limit=1))
    ((verdict,),) = task.judge([question], [[f" {question.reference}"]])
    assert (verdict.score, verdict.answer) == (0.0, None)


def test_an_empty_answer_is_wrong():
    task = PuzzleTask("pairs")
    (question,) = task.questions(Source(limit=1))
    assert task.judge([question], [[" "]])[0][0].score == 0.0


def test_more_questions_begin_with_the_same_ones():
    few, many = (PuzzleTask("hops").questions(Source(limit=n)) for n in (2, 6))
    assert many[:2] == few


def test_an_unknown_puzzle_is_refused():
    with pytest.raises(ValueError, match="no puzzle is called 'sudoku'"):
        PuzzleTask("sudoku")
