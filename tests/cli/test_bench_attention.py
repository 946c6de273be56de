import shlex
from functools import partial

import pytest
from typer.testing import CliRunner

from iha.bench.attention import Settings
from iha.cli.main import app
from iha.layers.mechanisms import MECHANISMS
from iha.records import read_record

runner = CliRunner()


def test_it_writes_what_it_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("iha.bench.measure.load_average", lambda: 0.25)
    pytest.importorskip("matplotlib")
    defaults = {"lengths": (64, 128), "growth_window": 8, "mechanism_tokens": 32}
    monkeypatch.setattr("iha.bench.attention.Settings", partial(Settings, **defaults))
    small = ["--tokens", "64", "--heads", "2", "--head-dim", "8", "--pseudo-heads", "2,1", "--repeats", "1"]
    result = runner.invoke(app, ["bench", "attention", *small, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "attention.json", "attention-bench")
    assert record.command == shlex.join(["iha", "bench", "attention", *small])
    written = record.results
    assert len(written["comparisons"]) == 2 * (2 * 2 + 1)
    assert len(written["growth"]) == 2 * 2 * 2
    assert written["quiet"]["load_before"] == 0.25
    layers = {(row["mechanism"], row["comparison"]) for row in written["mechanisms"]}
    assert {name for name, comparison in layers if comparison == "equal N"} == set(MECHANISMS)
    assert ("simplicial", "equal FLOPs") in layers
    assert (tmp_path / "attention.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--tokens", "0"], "0"),
        (["--dtype", "int8"], "int8"),
        (["--pseudo-heads", "2,x"], "2,x"),
        (["--pseudo-heads", "0"], "0"),
        (["--tokens", "16", "--pseudo-heads", "4"], "16 tokens, 4 pseudo-heads"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, arguments, value):
    out = tmp_path / "results"
    result = runner.invoke(app, ["bench", "attention", *arguments, "--out", str(out)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert value in result.output
    assert not out.exists()
