"""The paper's tables on the page: its numbers, ours from records, and what is missing with its command."""

import re

from iha.evaluate.paper import FINE_TUNED, PRETRAIN, RULER_AVERAGES
from iha.evaluate.ruler.settings import TASK_NAMES
from iha.report.page.section import Figure, Missing
from iha.report.page.tables import PAPER_LENGTHS, tables_section
from page_records import evaluation, results_of

NEEDLE = "ruler_niah_single_1_512"


def figures(section):
    return {part.table.title.split(" (")[0]: part.table for part in section.parts if isinstance(part, Figure)}


def rows(table):
    return {row[0]: row[1:] for row in table.rows if isinstance(row, list)}


def missing(section):
    return [part for part in section.parts if isinstance(part, Missing)]


def test_without_records_the_papers_rows_stand_alone_and_all_else_is_missing(tmp_path):
    section = tables_section(results_of(tmp_path))
    tables = figures(section)
    for paper in (PRETRAIN, FINE_TUNED):
        shown = rows(tables[paper.title])
        assert set(shown) == set(paper.rows)
        for name, values in paper.rows.items():
            printed = [None if cell == "–" else float(cell) for cell in shown[name][0:-1:2]]
            assert printed == list(values)
        assert paper.where in section.html()
    assert {name: float(cells[0]) for name, cells in rows(tables["RULER"]).items()} == RULER_AVERAGES
    commands = [part.command for part in missing(section)]
    assert [command.split()[1] for command in commands] == ["eval", "eval", "eval", *["synth"] * 4]


def test_ours_stand_below_with_the_records_numbers(tmp_path):
    records = [
        evaluation("Global", {"gsm8k": {"EM": [0, 0, 1, 0]}, NEEDLE: {"RULER": [0.5, 0], "lm-eval": [0, 0]}}),
        evaluation("IHA tiny", {"gsm8k": {"EM": [1, 0, 1, 0]}, NEEDLE: {"RULER": [1, 0.5], "lm-eval": [1, 0]}}),
    ]  # fmt: skip
    section = tables_section(results_of(tmp_path, *records))
    tables = figures(section)
    shown = rows(tables[PRETRAIN.title])
    assert shown["Global"][0] == "25.00"
    assert shown["IHA tiny"][0] == "50.00"
    assert shown["IHA"][0] == "8.34"
    by_task = [row for row in tables["RULER by task"].rows if isinstance(row, list)]
    assert sorted(by_task) == [["niah_single_1", "Global", "25.0"], ["niah_single_1", "IHA tiny", "75.0"]]
    lacking = missing(section)[0].what
    assert "GSM8K EM" not in lacking
    assert "HumanEval P@1" in lacking


def test_two_evaluations_of_one_name_are_told_apart(tmp_path):
    ours = [evaluation("IHA", {"gsm8k": {"EM": [1]}})]
    section = tables_section(results_of(tmp_path, *ours, committed=[evaluation("IHA", {"gsm8k": {"EM": [0]}})]))
    shown = rows(figures(section)[PRETRAIN.title])
    assert {name: cells[0] for name, cells in shown.items() if name.startswith("IHA (")} == {
        "IHA (this run, IHA)": "100.00",
        "IHA (committed, IHA)": "0.00",
    }


def test_the_whole_of_ruler_is_no_longer_missing(tmp_path):
    scores = {f"ruler_{task}_{n}": {"RULER": [0.5], "lm-eval": [0.5]} for task in TASK_NAMES for n in PAPER_LENGTHS}
    section = tables_section(results_of(tmp_path, evaluation("m", scores)))
    assert not any("RULER" in part.what for part in missing(section))
    assert re.search(r"<td[^>]*>50\.0</td>", section.html())
