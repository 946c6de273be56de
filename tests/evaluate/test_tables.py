import pytest

from iha.evaluate.paper import MULTI_KEY, TASK_NAMES
from iha.evaluate.results import KIND
from iha.evaluate.tables import Model, paper_tables, read_models
from iha.records import Record, write_record


def result(metrics: dict[str, list[float]], asked: str = "same") -> dict:
    means = {m: 100 * sum(scores) / len(scores) for m, scores in metrics.items()}
    return {"metrics": means, "scores": metrics, "questions": 4, "asked": asked}


def model(name: str, results: dict) -> Model:
    return Model(name, Record.new(KIND, command="", config={"model": name}).finished(results))


def rows(table) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table.rows if isinstance(row, list)}


def test_differences_intervals_and_ranks():
    ours = model("ours", {"gsm8k_sft": result({"P@1": [1, 0.5, 0.5, 0], "Maj@16": [1, 1, 1, 1]})})
    base = model("base", {"gsm8k_sft": result({"P@1": [0.5, 0.5, 0, 0], "Maj@16": [1, 1, 1, 1]})})
    (table,) = paper_tables([ours, base], "base")
    assert [column.title for column in table.columns] == ["Model", "GSM8K P@1", "Δ", "GSM8K Maj@16", "Δ", "Avg. rank"]
    found = rows(table)
    assert found["ours"] == ["50.0", "+25.0 [+0.0, +50.0]", "100.0", "+0.0 [+0.0, +0.0]", "1.25"]
    assert found["base"] == ["25.0", "–", "100.0", "–", "1.75"]
    assert found["Diff Transformer"] == ["31.6", "+2.1", "53.5", "+5.1", "2.00"]  # ranked on the columns shown
    assert found["Global Attention"] == ["29.5", "–", "48.4", "–", "3.50"]


def test_the_papers_own_table_when_all_its_columns_are_there():
    metrics = {"gsm8k_sft": ("P@1", "Maj@16"), "math500_sft": ("P@1", "Maj@16"), "mbpp_sft": ("P@1", "P@10")}
    results = {task: result({m: [0, 1, 1, 1] for m in names}) for task, names in metrics.items()}
    (table,) = paper_tables([model("m", results)])
    found = rows(table)
    assert " ".join(found["IHA"]) == "34.3 +4.8 54.2 +5.8 10.0 +1.2 18.4 +2.8 15.5 +0.8 41.6 +0.4 1.50"
    assert found["Global+Local"][-1] == "4.33"


def test_other_questions_are_not_paired():
    ours = model("ours", {"gsm8k": result({"EM": [1, 0]}, "these")})
    base = model("base", {"gsm8k": result({"EM": [1, 1]}, "those")})
    (table,) = paper_tables([ours, base], "base")
    assert rows(table)["ours"][1] == "-50.00 (other questions)"


def ruler(score: float, length: int = 4096, tasks=TASK_NAMES) -> dict:
    return {f"ruler_{t}_{length}": result({"RULER": [score, score], "lm-eval": [score / 2] * 2}) for t in tasks}


def test_ruler_by_length_and_overall():
    results = ruler(0.4) | ruler(0.2, 8192) | ruler(1.0, 8192, MULTI_KEY)
    tables = {table.title: table for table in paper_tables([model("m", results)])}
    assert set(tables) == {"RULER", "RULER as lm-eval scores it", "RULER by task"}
    titles = [column.title for column in tables["RULER"].columns if column.title != "Δ"]
    assert titles == ["Model", "Multi-Key 4096", "Multi-Key 8192", "All 4096", "All 8192", "Average", "Avg. rank"]
    overall = (3 * 100 + 10 * 20) / 13
    values = rows(tables["RULER"])["m"][:-1:2]
    assert values == ["40.0", "100.0", "40.0", f"{overall:.1f}", f"{(40 + overall) / 2:.1f}"]
    assert rows(tables["RULER"])["IHA"][-3] == "44.0"
    assert len(tables["RULER by task"].rows) == 13


def test_columns_that_nobody_has_are_left_out():
    only = paper_tables([model("m", ruler(0.5, tasks=MULTI_KEY))])[0]
    assert [column.title for column in only.columns] == ["Model", "Multi-Key 4096", "Δ", "Avg. rank"]
    assert list(rows(only)) == ["m"]  # the paper gives no values there
    with pytest.raises(ValueError, match="none of the paper's tasks"):
        paper_tables([model("m", {"else": result({"x": [1]})})])


def test_models_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_record(tmp_path / folder / "eval.json", model("same", ruler(1.0)).record)
    assert read_models([tmp_path / "a"])[0].name == "same"
    with pytest.raises(ValueError, match="two evaluations are called 'same'"):
        read_models([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ValueError, match="no evaluation of the baseline 'other'"):
        paper_tables(read_models([tmp_path / "a"]), "other")
