import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from material import byte_tokenizer, write_materials
from stand_ins import Chance, Interrupted, KilledError, Oracle, Sums

from iha.evaluate.protocol import Source, Verdict
from iha.evaluate.results import read_answered, read_evaluation
from iha.evaluate.ruler.settings import TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask
from iha.evaluate.run import evaluate, rescore

OPTIONS = {"model": "m", "source": Source(), "command": "iha eval run"}


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".gz"}


def test_an_oracle_has_all_of_ruler_right_and_chance_next_to_nothing(tmp_path):
    tasks = [RulerTask(setting, 3900) for setting in TASK_NAMES]
    source = Source(write_materials(tmp_path), limit=4)
    for engine, low, high in ((Oracle(byte_tokenizer()), 100, 100), (Chance(byte_tokenizer()), 0, 5)):
        record = evaluate(engine, tasks, tmp_path / type(engine).__name__, **OPTIONS | {"source": source})
        for task in tasks:
            assert low <= record.results[task.name]["metrics"]["RULER"] <= high, task.name
            assert record.results[task.name]["questions"] == 4


def test_every_prompt_sample_and_verdict_is_kept(tmp_path):
    record = evaluate(Chance(), [Sums()], tmp_path, **OPTIONS)
    answered = read_answered(tmp_path / "sums.jsonl.gz")
    assert [a.question for a in answered] == Sums().questions(Source())
    assert all(len(a.samples) == len(a.verdicts) == 2 for a in answered)
    assert record.results["sums"]["metrics"] == {"P@1": 0, "any": 0}
    assert read_evaluation(tmp_path).results == record.results


def test_the_same_model_gives_the_same_files(tmp_path):
    for name in ("one", "two"):
        evaluate(Chance(), [Sums()], tmp_path / name, **OPTIONS)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert read_evaluation(tmp_path / "one").results == read_evaluation(tmp_path / "two").results


@pytest.mark.parametrize("dies_at", range(5))
def test_an_interrupted_evaluation_goes_on_where_it_was(tmp_path, dies_at):
    evaluate(Chance(), [Sums()], tmp_path / "whole", **OPTIONS)
    with pytest.raises(KilledError):
        evaluate(Interrupted(dies_at, Chance()), [Sums()], tmp_path / "again", **OPTIONS)
    partial = tmp_path / "again" / "sums.partial"
    with partial.open("ab") as file:
        file.write(b'{"fingerprint": "cut sho')
    engine = Chance()
    evaluate(engine, [Sums()], tmp_path / "again", **OPTIONS)
    assert engine.calls == 5 - dies_at
    assert files(tmp_path / "again") == files(tmp_path / "whole")
    assert not partial.exists()


def test_finished_tasks_are_not_run_again_and_new_ones_are_added(tmp_path):
    evaluate(Oracle(), [Sums()], tmp_path, **OPTIONS)
    engine = Oracle()
    record = evaluate(engine, [Sums(), Sums(name="more")], tmp_path, **OPTIONS)
    assert engine.calls == 5
    assert list(record.results) == ["sums", "more"]
    assert record.results["more"]["metrics"] == {"P@1": 100, "any": 100}


def test_another_model_or_other_questions_do_not_go_into_the_same_directory(tmp_path):
    evaluate(Oracle(), [Sums()], tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="holds another evaluation"):
        evaluate(Chance(), [Sums()], tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="'limit': 3"):
        evaluate(Oracle(), [Sums()], tmp_path, **OPTIONS | {"source": Source(limit=3)})


def test_partial_answers_of_other_settings_are_refused(tmp_path):
    with pytest.raises(KilledError):
        evaluate(Interrupted(2, Oracle()), [Sums()], tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="other questions or settings"):
        evaluate(Oracle(), [Sums(decoding=replace(Sums().decoding, temperature=1.0))], tmp_path, **OPTIONS)


def test_programs_run_only_when_that_is_allowed(tmp_path):
    with pytest.raises(ValueError, match="allow-code"):
        evaluate(Oracle(), [Sums(runs_code=True)], tmp_path, **OPTIONS)
    assert evaluate(Oracle(), [Sums(runs_code=True)], tmp_path, **OPTIONS, allow_code=True).results


def test_everything_that_cannot_work_is_said_before_the_first_answer(tmp_path):
    engine = Oracle(byte_tokenizer())
    tasks = [Sums(), RulerTask("niah_single_1", 256), RulerTask("vt", 256)]
    with pytest.raises(ValueError, match="niah_single_1") as refused:
        evaluate(engine, tasks, tmp_path / "out", **OPTIONS)
    assert "vt does not fit into 256" in str(refused.value)
    assert engine.calls == 0
    with pytest.raises(ValueError, match="twice"):
        evaluate(engine, [Sums(), Sums()], tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="no tasks"):
        evaluate(engine, [], tmp_path, **OPTIONS)


class Lenient(Sums):
    def judge(self, questions, samples):
        return [[Verdict(1.0) for _ in texts] for texts in samples]


def test_rescoring_needs_no_model(tmp_path):
    evaluate(Chance(), [Sums()], tmp_path, **OPTIONS)
    before = read_answered(tmp_path / "sums.jsonl.gz")
    record = rescore(tmp_path, {"sums": Lenient()})
    assert record.results["sums"]["metrics"] == {"P@1": 100, "any": 100}
    after = read_answered(tmp_path / "sums.jsonl.gz")
    assert [a.samples for a in after] == [a.samples for a in before]
    rescore(tmp_path, {"sums": Sums()})
    assert read_answered(tmp_path / "sums.jsonl.gz") == before
    with pytest.raises(ValueError, match="sums"):
        rescore(tmp_path, {})


VICTIM = """
import sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from stand_ins import Chance, Sums
from iha.evaluate.protocol import Source
from iha.evaluate.run import evaluate

class Chance(Chance):
    def answer(self, *arguments):
        if self.calls == 3:
            print("three batches are done", flush=True)
            time.sleep(600)
        return super().answer(*arguments)

evaluate(Chance(), [Sums()], Path(sys.argv[1]), model="m", source=Source(), command="iha eval run")
"""


def test_a_process_that_is_killed_loses_nothing_that_was_answered(tmp_path):
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    command = [sys.executable, "-c", VICTIM, str(tmp_path / "killed"), *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout.readline() == "three batches are done\n"
        victim.kill()
    engine = Chance()
    evaluate(engine, [Sums()], tmp_path / "killed", **OPTIONS)
    assert engine.calls == 2
    evaluate(Chance(), [Sums()], tmp_path / "whole", **OPTIONS)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
