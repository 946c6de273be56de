"""The files of an evaluation: round trips, the same bytes for the same answers, and what a kill leaves."""

import gzip
import json

import pytest
from stand_ins import Sums

from iha.evaluate.protocol import Question, Source, Verdict
from iha.evaluate.results import (
    KIND,
    RECORD,
    Answered,
    Partial,
    judged,
    read_answered,
    read_evaluation,
    summary,
    write_answered,
)
from iha.records import Record, write_record


def answered():
    questions = Sums().questions(Source(limit=3))
    return judged(Sums(), questions, [["1", "1"], ["2", "é"], ["x", "\n"]])


def test_what_was_judged_is_read_again(tmp_path):
    write_answered(tmp_path / "a.jsonl.gz", answered())
    assert read_answered(tmp_path / "a.jsonl.gz") == answered()
    (tmp_path / "again").mkdir()
    write_answered(tmp_path / "again" / "b.jsonl.gz", answered())
    assert (tmp_path / "again" / "b.jsonl.gz").read_bytes() == (tmp_path / "a.jsonl.gz").read_bytes()
    lines = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).decode().splitlines()
    assert json.loads(lines[1])["samples"][1] == {"text": "é", "score": 0.0, "answer": "é", "detail": {}}


def test_a_summary_by_hand():
    """Both samples right, one of two, none."""
    found = summary(Sums(), answered())
    assert found["metrics"] == {"P@1": pytest.approx(50), "any": pytest.approx(200 / 3)}
    assert found["scores"] == {"P@1": [1.0, 0.5, 0.0], "any": [1.0, 1.0, 0.0]}
    assert found["questions"] == 3


def test_asked_tells_questions_apart_and_nothing_else():
    """Ids, references and their order; prompts may differ by tokenizer."""

    def asked(*questions):
        given = [Answered(q, ["1"], [Verdict(1.0)], {"P@1": 1.0, "any": 1.0}) for q in questions]
        return summary(Sums(), given)["asked"]

    one, two = Question("0", "p", "1", 3), Question("1", "p", "2", 3)
    assert asked(one, two) == asked(Question("0", "other", "1", 9), two)
    assert len({asked(one, two), asked(two, one), asked(one), asked(Question("0", "p", "7", 3), two)}) == 4


def test_damaged_files_are_named(tmp_path):
    write_answered(tmp_path / "sums.jsonl.gz", answered())
    whole = (tmp_path / "sums.jsonl.gz").read_bytes()
    for content in (b"nonsense", whole[:-20], gzip.compress(b'{"question": 1}\n')):
        (tmp_path / "sums.jsonl.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"sums\.jsonl\.gz holds no answers that can be read"):
            read_answered(tmp_path / "sums.jsonl.gz")


def test_an_evaluation_by_its_directory_or_its_file(tmp_path):
    record = Record.new(KIND, command="", config={}).finished({"sums": {}})
    write_record(tmp_path / RECORD, record)
    assert read_evaluation(tmp_path) == read_evaluation(tmp_path / RECORD)
    assert read_evaluation(tmp_path).results == {"sums": {}}
    with pytest.raises(ValueError, match="no evaluation"):
        read_evaluation(tmp_path / "elsewhere")
    (tmp_path / RECORD).write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"eval\.json"):
        read_evaluation(tmp_path)


def partial(path, fingerprint="f"):
    found = Partial(path, fingerprint)
    return found, dict(found.answers)


def test_a_cut_line_is_dropped_and_what_follows_is_whole(tmp_path):
    path = tmp_path / "t.partial"
    first, _ = partial(path)
    first.add(0, [["a"]])
    first.add(3, [["é", "c"]])
    first.close()
    with path.open("ab") as file:
        file.write(b'{"fingerprint": "f", "batch": 4')
    second, kept = partial(path)
    assert kept == {0: [["a"]], 3: [["é", "c"]]}
    second.add(4, [["d"]])
    second.close()
    third, kept = partial(path)
    third.close()
    assert kept == {0: [["a"]], 3: [["é", "c"]], 4: [["d"]]}


def test_partial_answers_that_do_not_belong_here_are_refused(tmp_path):
    path = tmp_path / "t.partial"
    first, _ = partial(path)
    first.add(0, [["a"]])
    first.close()
    with pytest.raises(ValueError, match="other questions or settings"):
        partial(path, "g")
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(ValueError, match="is damaged: delete it"):
        partial(path)
