"""`iha eval` from the command line, on a tiny IHA model with random weights."""

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from iha.cli.main import app
from iha.models import IHAConfig, IHAForCausalLM

sys.path.insert(0, str(Path(__file__).parent.parent / "evaluate"))
from material import byte_tokenizer, write_materials


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A checkpoint and RULER's materials."""
    folder = tmp_path_factory.mktemp("eval")
    torch.manual_seed(0)
    config = IHAConfig(
        vocab_size=258, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=8192, attention="iha", window=8, global_every=2, eos_token_id=257,
    )  # fmt: skip
    IHAForCausalLM(config).save_pretrained(folder / "tiny")
    byte_tokenizer().save_pretrained(folder / "tiny")
    write_materials(folder)
    return folder


def iha(*words):
    return CliRunner().invoke(app, ["eval", *map(str, words)])


def run(place, out, *words):
    options = ["--lengths", "3000", "--limit", 1, "--data", place, "--cache", place / "cache", "--out", out]
    return iha("run", place / "tiny", *options, *words)


@pytest.mark.parametrize("tasks", ["fwe,qa_1", pytest.param("ruler", marks=pytest.mark.slow)])
def test_a_tiny_model_goes_through_all_of_ruler_and_into_the_tables(place, tasks):
    out = place / tasks
    result = run(place, out / "first", "--tasks", tasks, "--name", "first")
    assert result.exit_code == 0, result.output
    record = json.loads((out / "first" / "eval.json").read_text())
    assert len(record["results"]) == (13 if tasks == "ruler" else 2)
    assert all(0 <= r["metrics"]["RULER"] <= 5 for r in record["results"].values())  # random weights
    assert record["command"].startswith("iha eval run")

    again = run(place, out / "second", "--tasks", tasks, "--name", "second")
    assert again.exit_code == 0, again.output
    for task in record["results"]:
        name = f"{task}.jsonl.gz"
        assert (out / "first" / name).read_bytes() == (out / "second" / name).read_bytes()

    table = iha("table", out / "first", out / "second", "--baseline", "first", "--out", out / "tables")
    assert table.exit_code == 0, table.output
    for name in ("tables.md", "tables.tex", "tables.html"):
        text = (out / "tables" / name).read_text()
        assert "second" in text
        assert "44.0" in text or tasks != "ruler"  # the paper's average
    assert iha("score", out / "first").exit_code == 0
    assert json.loads((out / "first" / "eval.json").read_text())["results"] == record["results"]


def test_refusals_are_one_line_and_leave_nothing(place):
    for words, named in (
        (["--tasks", "hellaswag"], "hellaswag"),
        (["--tasks", "vt", "--lengths", "x"], "'x'"),
        (["--tasks", "vt", "--lengths", "256"], "does not fit into 256"),
        (["--tasks", "vt", "--chat"], "chat template"),
        (["--tasks", "vt", "--data", "no/where"], "no/where"),
    ):
        result = run(place, place / "refused", *words)
        assert result.exit_code == 2, result.output
        assert named in result.stderr
        assert result.stderr.count("\n") == 1
        assert not (place / "refused").exists()
