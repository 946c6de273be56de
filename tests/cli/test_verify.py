"""`iha verify` from the command line."""

import json

import pytest
from typer.testing import CliRunner

from iha.cli.main import app
from iha.records import read_record
from iha.theory import verify as theory
from iha.theory.claims import holds

runner = CliRunner()


def test_one_check_prints_a_table_and_writes_its_results(tmp_path) -> None:
    result = runner.invoke(app, ["verify", "--only", "flops", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "FAILS" not in result.output
    assert "0 fail" in result.output
    record = read_record(tmp_path / "verify.json", "verify")
    assert record.command == "iha verify --only flops"
    assert record.results["failed"] == 0
    assert {row["theorem"] for row in record.results["claims"]} == {"flops"}
    assert (tmp_path / "errata.md").read_text().startswith("# Errata of the paper")


def test_json_is_the_record_and_nothing_else(tmp_path) -> None:
    result = runner.invoke(app, ["verify", "--only", "tables", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((tmp_path / "verify.json").read_text())


def test_pictures_of_one_check(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    result = runner.invoke(app, ["verify", "--only", "cpm3", "--n-max", "6", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {p.name for p in tmp_path.glob("*.png")} == {"cpm3-workspace.png", "parameters.png"}


def test_a_failing_claim_gives_exit_code_1_and_is_written(tmp_path, monkeypatch) -> None:
    broken = holds("tables", "two and two are five", "nowhere", "arithmetic", error=1.0, tolerance=0.0)
    monkeypatch.setitem(theory.CHECKS, "tables", lambda settings: iter([broken]))
    result = runner.invoke(app, ["verify", "--only", "tables", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "FAILS" in result.output
    assert read_record(tmp_path / "verify.json").results["failed"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "unknown check"),
        (["--n-max", "9000"], "bytes"),
        (["--k", "1"], "at least 2"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(arguments, message, tmp_path) -> None:
    result = runner.invoke(app, ["verify", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()
