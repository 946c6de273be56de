"""Charts of the synthetic runs: accuracies in order, comparisons first, controls behind."""

from iha.records import Record, write_record
from iha.report.page.results import Results
from iha.report.page.section import Details
from iha.report.page.synthetic import synthetic_section
from iha.synthetic.files import SUMMARY_KIND


def variant(label, mechanism, mean, finished=True):
    final = {"mean": mean, "min": mean - 0.01, "max": mean + 0.02}
    return {"label": label, "config": {"mechanism": mechanism}, "final": final, "finished": [finished, True]}


def written(path, *variants, task="binary"):
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {"task": task, "variants": list(variants)}
    write_record(path, Record.new(SUMMARY_KIND, command="iha synth", config={}).finished(results))


IHA, SIMPLICIAL = variant("IHA", "iha", 0.9), variant("2-simplicial", "simplicial", 0.85, finished=False)


def test_accuracies_in_order_with_their_spread(tmp_path):
    written(tmp_path / "run" / "a.json", SIMPLICIAL, IHA)
    (chart,) = synthetic_section(Results(tmp_path / "run", None)).charts
    rows = chart.spec["data"]["values"]
    assert [(row["model"], round(row["accuracy"], 6)) for row in rows] == [("IHA", 90), ("2-simplicial", 85)]
    assert [(round(row["low"], 6), round(row["high"], 6)) for row in rows] == [(89, 92), (84, 87)]
    assert [row["finished"] for row in rows] == ["to the end", "not to the end"]
    assert chart.alt == "IHA 90.0 %, 2-simplicial 85.0 %"
    assert chart.title == "2-hop: a (this run)"


def test_the_paper_s_comparison_first_and_controls_behind(tmp_path):
    written(tmp_path / "kept" / "a-control.json", IHA, variant("IHA H2", "iha", 0.8))
    written(tmp_path / "kept" / "b.json", IHA, SIMPLICIAL)
    written(tmp_path / "kept" / "c-alone.json", IHA)
    written(tmp_path / "kept" / "d-other.json", IHA, SIMPLICIAL, task="cpm3")
    section = synthetic_section(Results(None, tmp_path / "kept"))
    assert [chart.title for chart in section.charts] == ["2-hop: b (committed)", "2-hop: a-control (committed)"]
    (details,) = (part for part in section.parts if isinstance(part, Details))
    assert [part.title for part in details.parts] == ["2-hop: a-control (committed)"]


def test_the_paper_s_protocol_comes_before_our_first_model_and_small_sweeps_are_behind(tmp_path):
    def sweep(name, **config):
        protocol = {"model": "paper", "num_heads": 8, "num_pseudo_heads": 8, "init": "one_hot", "task": "binary",
                    "sizes": [6, 7, 8, 9, 10], "train_examples": 40_000}  # fmt: skip
        variants = [one | {"config": one["config"] | protocol | config} for one in (IHA, SIMPLICIAL)]
        written(tmp_path / "kept" / f"{name}.json", *variants)

    sweep("a-small", train_examples=10_000)
    sweep("b-ours", model="ours")
    sweep("c-protocol")
    section = synthetic_section(Results(None, tmp_path / "kept"))
    names = ["2-hop: c-protocol (committed)", "2-hop: b-ours (committed)", "2-hop: a-small (committed)"]
    assert [chart.title for chart in section.charts] == names
    (details,) = (part for part in section.parts if isinstance(part, Details))
    assert [part.title for part in details.parts] == names[2:]


def test_without_runs_the_command_is_shown():
    assert "Not run: the synthetic comparison." in synthetic_section(Results(None, None)).html()
