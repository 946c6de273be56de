import json
from pathlib import Path

import pytest

from iha.evaluate.protocol import Decoding, Question, Source, Verdict


def test_a_question_survives_json():
    question = Question("7", "1 + 1 =", ["2", "two"], 8, stop=("\n",), prefix=" Answer:", meta={"depth": 0.5})
    assert Question.from_json(json.loads(json.dumps(question.as_json()))) == question


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Decoding(samples=16), "16 times the same text"),
        (lambda: Decoding(samples=0), "samples=0"),
        (lambda: Decoding(temperature=-1), "temperature=-1"),
        (lambda: Decoding(temperature=1, top_p=0), "top_p=0"),
        (lambda: Question("x", "p", "r", 0), "got 0"),
        (lambda: Verdict(1.5), "1.5"),
        (lambda: Verdict(float("nan")), "nan"),
        (lambda: Source(limit=0), "got 0"),
        (lambda: Source(data=Path("no/such/place")), "no/such/place"),
    ],
)
def test_what_makes_no_sense_is_refused(build, named):
    with pytest.raises(ValueError, match=named):
        build()
