"""The scale model on the page: every number of the tables, charts and answers is that of a record."""

import json

import pytest

from iha.report.page.language_model import language_model_section
from iha.report.page.section import Chart, Details, Figure, Missing
from page_records import answers, results_of
from scale_model_records import measured_record, run_record


def study(**more):
    losses = {"global": [3.0, 2.5], "iha": [2.9, 2.25]}
    return [run_record(name, seed, [loss + seed / 8 for loss in curve], folder="scale-model", **more)
            for name, curve in losses.items() for seed in (0, 1)]  # fmt: skip


def parts(section, kind):
    nested = [part for details in section.parts if isinstance(details, Details) for part in details.parts]
    return [part for part in (*section.parts, *nested) if isinstance(part, kind)]


def test_tables_and_charts_have_the_records_numbers(tmp_path):
    section = language_model_section(results_of(tmp_path, *study()))
    table = parts(section, Figure)[0].table
    rows = {row[0]: row for row in table.rows if isinstance(row, list)}
    assert rows["iha"][1:4] == ["2", "2.3125 ± 0.0884", "-0.2500 ± 0.0000"]
    assert rows["global"][2] == "2.5625 ± 0.0884"
    charts = {chart.id: chart for chart in parts(section, Chart)}
    losses = {row["model"]: row for row in charts["loss-0-pretrain"].spec["data"]["values"]}
    assert losses["iha"] == {"model": "iha", "loss": 2.3125, "low": 2.25, "high": 2.375}
    curve = charts["loss-tokens-0"].spec["data"]["values"]
    points = [(row["x"], row["value"], row["low"], row["high"]) for row in curve if row["model"] == "iha"]
    assert points[0] == pytest.approx((1e-4, 2.9625, 2.9, 3.025))
    assert points[1] == pytest.approx((2e-4, 2.3125, 2.25, 2.375))
    probes = charts["learned-0"].spec["data"]["values"]
    assert [row["value"] for row in probes if row["model"] == "global"] == [10.0, 60.0, 97.0]


def test_a_sweep_of_learning_rates_is_not_drawn_among_the_curves(tmp_path):
    swept = run_record("iha", 0, [9.0, 9.0], rate=1e-2, folder="scale-model")
    section = language_model_section(results_of(tmp_path, *study(), swept))
    (curves,) = [chart for chart in parts(section, Chart) if chart.id == "loss-tokens-0"]
    assert 9.0 not in [row["value"] for row in curves.spec["data"]["values"]]


def test_this_run_and_the_committed_one_stay_apart(tmp_path):
    section = language_model_section(results_of(tmp_path, *study(), committed=study()))
    titles = [figure.table.title for figure in section.parts if isinstance(figure, Figure)]
    assert titles == [f"Scale model, pretrain, 0.0 M tokens ({origin})" for origin in ("this run", "committed")]
    ids = [chart.id for chart in section.charts]
    assert len(set(ids)) == len(ids)
    json.dumps([chart.spec for chart in section.charts], allow_nan=False)


def test_every_phase_is_shown_with_its_own_source(tmp_path):
    tune = study(phase="tune", source="arithmetic")
    section = language_model_section(results_of(tmp_path, *study(), *tune))
    charts = {chart.id: chart for chart in parts(section, Chart)}
    assert "arithmetic" in json.dumps(charts["loss-0-tune"].spec)


def test_answers_are_shown_word_for_word(tmp_path):
    section = language_model_section(results_of(tmp_path, answers({"global": 12.5, "iha": 75.0})))
    tables = [figure.table for figure in parts(section, Figure)]
    assert [row for row in tables[0].rows if isinstance(row, list)] == [
        ["Global", "12.5", "12.5"],
        ["IHA", "75.0", "75.0"],
    ]
    html = section.html()
    assert "What is &lt;puzzle_arithmetic&gt;?" in html
    assert "IHA, right: <code>IHA wrote 3</code>" in html
    assert "Global, wrong: <code>Global wrote 0</code>" in html


def test_measurements_are_shown(tmp_path):
    records = [measured_record(name, seed, retrieval={"needle": {"512": 0.5}})
               for name in ("global", "iha") for seed in (0, 1)]  # fmt: skip
    section = language_model_section(results_of(tmp_path, committed=records))
    titles = [figure.table.title for figure in parts(section, Figure)]
    assert titles == [
        "Held-out puzzles after pretrain, % (committed)",
        "Retrieval by length after pretrain, % (committed)",
    ]


def test_what_is_missing_has_its_command(tmp_path):
    commands = [part.command for part in parts(language_model_section(results_of(tmp_path)), Missing)]
    assert [command.split()[:3] for command in commands] == [
        ["iha", "experiment", "scale-model"],
        ["iha", "experiment", "evaluate"],
    ]
