"""`iha flops` from the command line: tables, JSON, and refusals that leave nothing behind."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from iha.cli.main import app
from iha.records import read_record


def test_the_papers_model(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["flops", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "talking_heads" in result.output
    found = read_record(tmp_path / "out" / "flops.json", "flops").results
    assert found["local_window"] == 1024
    by_name = {row["schedule"]: row for row in found["schedules"]}
    assert by_name["iha, the pattern once"]["attention_to_global"]["paper"] == pytest.approx(0.6)
    assert by_name["iha"]["attention_to_global"]["causal"] == pytest.approx(1)
    # 26 layers of four 2560 x 2560 matrices, and 21 of alpha (3 x 20 x 20 x 2) and R (20 x 2).
    assert by_name["iha"]["parameters"] == {"projections": 26 * 4 * 2560**2, "mixing": 21 * (3 * 800 + 40)}
    assert (tmp_path / "out" / "flops.md").read_text().startswith("**One layer, 8192 tokens")


def test_every_option(tmp_path: Path) -> None:
    options = (
        "--width 96 --heads 6 --kv-heads 2 --head-dim 8 --tokens 300 --pseudo-heads 3 --match causal --schedule iha "
        "--layers 7 --causal token --collapse full --element-size 4 "
        "--gate headwise"
    )
    result = CliRunner().invoke(app, ["flops", *options.split(), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = read_record(tmp_path / "flops.json", "flops").results
    assert found["local_window"] == 300 // 18
    assert found["question"]["shape"]["causal"] == "token"
    assert found["layers"][0]["cache_bytes"] == 2 * 300 * 2 * 8 * 4
    assert "no flash mask can express that" in found["layers"][3]["flash_obstacle"]
    assert found["layers"][3]["parameters"] == {
        "projections": 96 * 8 * (2 * 6 + 2 * 2) + 96 * 6, "mixing": 3 * (36 + 2 * 4 + 36)
    }  # fmt: skip


def test_without_causality(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["flops", "--causal", "none", "--tokens", "512", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = read_record(tmp_path / "flops.json", "flops").results
    assert found["layers"][0]["cache_bytes"] is None
    assert found["layers"][0]["flops"]["attention"] == 4 * 2560 * 512 * 512


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--heads 3", "3 heads"),
        ("--heads 0", "got 0"),
        ("--tokens 0", "got 0"),
        ("--window -5", "got -5"),
        ("--kv-heads 7", "7 k/v heads"),
        ("--causal both", "'both'"),
        ("--collapse half", "'half'"),
        ("--gate tanh", "'tanh'"),
        ("--match nothing", "'nothing'"),
        ("--schedule unheard_of", "'unheard_of'"),
        ("--pseudo-heads 100", "100 pseudo-heads"),
        ("--layers 0", "got 0"),
    ],
)
def test_refusals_name_the_value_and_write_nothing(options: str, words: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["flops", *options.split(), "--out", str(out)], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not out.exists()
