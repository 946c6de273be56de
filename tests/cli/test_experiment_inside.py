"""`iha experiment inside`: options reach the room, its table is shown."""

from cli.calls import assert_refused, iha
from iha.records import Record


def test_options_reach_the_room_and_its_table_is_shown(tmp_path, monkeypatch):
    asked = []
    found = {"mean": 0.25, "least": 0.125, "largest": 0.5}
    names = ("patterns_apart", "queries_apart", "contributing", "effective_rank")
    summary = dict.fromkeys((*names, "without_query", "without_value", "without_head"), found)
    results = {"summary": summary | {"pseudo_heads": 2, "cosine": dict.fromkeys("qkv", found)}}

    def look_inside(out, runs, *, command, sequences, names, progress):
        asked.append((out, runs, sequences, tuple(names)))
        return [Record.new("x", command=command, config={"name": "pretrain-iha-s0"}).finished(results)]

    monkeypatch.setattr("iha.experiment.inside.look_inside", look_inside)
    words = ["pretrain-iha-s0", "--sequences", 3, "--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    result = iha("experiment", "inside", *words)
    assert result.exit_code == 0, result.output
    assert asked == [(tmp_path / "out", tmp_path / "runs", 3, ("pretrain-iha-s0",))]
    assert "+0.2500 (+0.5000)" in result.output


def test_a_run_that_is_not_there_is_named(tmp_path):
    words = ["pretrain-iha-s0", "--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    assert_refused(iha("experiment", "inside", *words), "pretrain-iha-s0")
