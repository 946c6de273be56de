"""`iha experiment speed`: the record beside the runs, a table on the screen, refusals."""

from cli.calls import assert_refused, iha
from iha.records import Record


def test_the_record_is_written_and_shown(tmp_path, monkeypatch):
    asked = {}

    def measured(records, runs, **options):
        asked.update(options, runs=runs)
        results = {
            "reference": "Global", "tokens_per_second": {"Global": 1000.0, "IHA": 800.0},
            "ratios": {"Global": [1.0, 1.0, 1.0], "IHA": [0.8, 0.79, 0.81]}, "quiet": {"warnings": ["it was busy"]},
        }  # fmt: skip
        config = {"rounds": options["rounds"], "threads": options["threads"]}
        return Record.new("scale-model-speed", command=options["command"], config=config).finished(results)

    monkeypatch.setattr("iha.experiment.speed.measure_speed", measured)
    result = iha("experiment", "speed", tmp_path, "--rounds", 5, "--runs", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert (asked["rounds"], asked["threads"], asked["runs"]) == (5, 1, tmp_path / "runs")
    assert (tmp_path / "speed.json").is_file()
    for shown in ("IHA", "800", "0.80, 0.79, 0.81", "it was busy", "best of 5 turns"):
        assert shown in result.output


def test_a_directory_without_runs_is_refused(tmp_path):
    assert_refused(iha("experiment", "speed", tmp_path), "no record of a finished pre-training run")
    assert not list(tmp_path.iterdir())
