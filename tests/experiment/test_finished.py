"""Finished runs, found by their records and exports, each handled once."""

import pytest

from iha.experiment.finished import for_each_finished
from iha.experiment.plan import KIND as RUN
from iha.records import Record, write_record

NAMES = ("pretrain-global-s0", "pretrain-iha-s0", "pretrain-iha-lr0.001-s0", "adapt-iha-s0")


@pytest.fixture
def places(tmp_path):
    records, runs = tmp_path / "records", tmp_path / "runs"
    records.mkdir()
    for name in NAMES:
        write_record(
            records / f"{name}.json", Record.new(RUN, command="iha", config={"name": name}, seed=0).finished({})
        )
        if not name.startswith("adapt"):
            (runs / name / "export").mkdir(parents=True)
    return records, runs


def made(places, seen, **options):
    def make(run, directory):
        seen.append((run.config["name"], directory))
        return Record.new("made", command="iha", config={"of": run.config["name"]}, seed=0).finished({})

    return for_each_finished(*places, make, directory="made", kind="made", title="making", **options)


def test_all_with_an_export_but_not_a_sweeps_and_each_once(places):
    seen = []
    first, second = made(places, seen), made(places, seen)
    wanted = ["pretrain-global-s0", "pretrain-iha-s0"]
    assert [record.config["of"] for record in first] == [record.config["of"] for record in second] == wanted
    assert seen == [(name, places[1] / name) for name in wanted]  # nothing is made twice


def test_what_is_wanted_chooses_unless_runs_are_named(places):
    seen = []
    made(places, seen, has_it=lambda run: "iha" in run.name)
    made(places, seen, names=["pretrain-iha-lr0.001-s0"], has_it=lambda run: False)
    assert [name for name, _ in seen] == ["pretrain-iha-s0", "pretrain-iha-lr0.001-s0"]


def test_what_is_not_there_is_named(places):
    with pytest.raises(ValueError, match=r"adapt-iha-s0: no record in .* or no export"):
        made(places, [], names=["adapt-iha-s0"])
    with pytest.raises(ValueError, match=r"no run of .* has a soul in"):
        made(places, [], wanted="a soul", has_it=lambda run: False)
    assert not (places[0] / "made").exists()
