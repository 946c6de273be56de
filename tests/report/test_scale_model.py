"""Tables say what the records say: numbers worked out by hand, and nothing where nothing was run."""

from iha.experiment.compare import compare
from iha.report.scale_model import phase_tables, summary_table
from scale_model_records import run_record


def cells(table):
    return {row[0]: row[1:] for row in table.rows if not isinstance(row, str)}


def test_a_phase_in_tables():
    runs = [run_record("global", seed, (2.0, 1.0 + seed / 10)) for seed in range(3)]
    runs += [run_record("iha", seed, (2.0, 0.9 + seed / 5), accuracy=(0.6, 0.6)) for seed in range(3)]
    runs += [run_record("iha", 0, (2.0, 1.2), variant="P=8"), run_record("iha", 0, (3.0,), rate=4e-3)]
    compared, learned, costs, variants, rates = phase_tables(compare(runs))
    mean, difference = cells(compared)["iha"][1:3]
    assert mean == "1.1000 ± 0.2000"
    assert difference == "+0.0000 ± 0.1000"  # -0.1, 0, 0.1
    assert cells(compared)["iha"][3] == "1.000"
    assert cells(compared)["global"][3] == "–"
    assert cells(learned)["iha"][:2] == ["0.00 M", "–"]
    assert cells(costs)["iha"][0] == "10"
    assert cells(variants) == {"ihaP=8": ["1", "1.2000", "+0.2000", "+0.3000", "97.0", "–", "10"]}
    assert cells(rates) == {"iha": ["3.0000", "0.004", "0.001"]}
    assert all(table.markdown() for table in (compared, learned, costs, variants, rates))


def test_a_sweep_alone():
    (table,) = phase_tables(compare([run_record("iha", 0, (2.0,), rate=rate) for rate in (1e-3, 2e-3)]))
    assert cells(table) == {"iha": ["2.0000", "2.0000", "0.001 (at the edge)", "–"]}


def test_pseudo_heads_that_grow_are_compared_with_those_from_the_start():
    uniform = run_record("iha", 0, (2.0, 1.5), variant="P=2 token index")
    grown = run_record("iha", 0, (2.0, 1.2), variant="P=2 grown everywhere", baseline=uniform.config["name"])
    *_, variants = phase_tables(compare([run_record("global", 0, (2.0, 1.0)), uniform, grown]))
    assert cells(variants)["ihaP=2 grown everywhere"][2] == "-0.3000"
    assert "baseline of pseudo-heads that have grown" in variants.markdown()


def test_the_summary_has_only_what_is_compared_with_the_baseline():
    uniform = run_record("iha", 0, (2.0, 1.5), variant="P=2 token index")
    grown = run_record("iha", 0, (2.0, 1.2), variant="P=2 grown everywhere", baseline=uniform.config["name"])
    runs = [run_record("global", 0, (2.0, 1.0)), uniform, grown]
    summary = cells(summary_table(compare(runs)))
    assert set(summary) == {"global", "ihaP=2 token index"}
    assert summary["ihaP=2 token index"][1] == "+0.500"
