import pytest
from published import DATA, needs_data
from stand_ins import Chance, Oracle

from iha.evaluate.jail import JailUnavailableError, check_jail
from iha.evaluate.paper import FINE_TUNED, PRETRAIN
from iha.evaluate.protocol import Source
from iha.evaluate.run import evaluate, rescore
from iha.evaluate.suites import by_name, choose


def test_ruler_by_group_setting_and_full_name():
    assert len(choose(["ruler"], [4096, 8192])) == 26
    assert [t.name for t in choose(["ruler_multikey", "vt"], [512])] == [
        "ruler_niah_multikey_1_512", "ruler_niah_multikey_2_512", "ruler_niah_multikey_3_512", "ruler_vt_512",
    ]  # fmt: skip
    assert choose(["ruler_vt_512", "vt"], [512]) == [by_name("ruler_vt_512")]


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="--lengths"):
        choose(["ruler"])
    with pytest.raises(ValueError, match="'hellaswag'"):
        choose(["hellaswag"])
    with pytest.raises(ValueError, match="got 100"):
        choose(["vt"], [100])


def test_every_column_of_the_papers_tables_is_a_metric_of_its_task():
    for table, suite in ((PRETRAIN, "pretrain"), (FINE_TUNED, "sft")):
        tasks = {task.name: task for task in choose([suite])}
        columns = {(name, measure.metric) for measure in table.measures for name in measure.tasks}
        assert columns == {(task.name, metric) for task in tasks.values() for metric in task.metrics}


class Knowing(Oracle):
    """Writes the published solution."""

    def text(self, question, rng):
        doc = question.meta["doc"]
        return doc.get("canonical_solution") or doc.get("code") or f"\\boxed{{{question.reference}}} #### {_last(doc)}"


def _last(doc):
    return doc["answer"].rsplit("#### ", 1)[-1]


@pytest.mark.slow
@needs_data
def test_an_oracle_has_everything_right_and_chance_nothing(tmp_path):
    try:
        check_jail()
    except JailUnavailableError as error:
        pytest.skip(str(error))
    tasks = choose(["pretrain", "sft"])
    for engine, expected in ((Knowing(), 100), (Chance(), 0)):
        out = tmp_path / type(engine).__name__
        record = evaluate(engine, tasks, out, model="m", source=Source(DATA, limit=2), command="", allow_code=True)
        values = {(name, m): v for name, r in record.results.items() for m, v in r["metrics"].items()}
        assert values == dict.fromkeys(values, expected)
        assert rescore(out, {task.name: task for task in tasks}, allow_code=True).results == record.results
