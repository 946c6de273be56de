"""`iha convert` from end to end, there and back."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

import iha.models
from iha.cli.main import app
from iha.records import read_record


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=31, hidden_size=16, intermediate_size=16, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def _run(*arguments: str | Path) -> object:
    return CliRunner().invoke(app, ["convert", *(str(a) for a in arguments)])


@torch.no_grad()
def test_there_and_back(llama: Path, tmp_path: Path) -> None:
    options = ("--pseudo-heads", "3", "--layers", "0-1,4", "--out", tmp_path / "out")
    result = _run(llama, tmp_path / "iha", *options)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "out" / "convert.json", "convert")
    written = record.results
    assert record.command == f"iha convert {llama} {tmp_path / 'iha'} --pseudo-heads 3 --layers 0-1,4"
    assert record.config["layers"] == [0, 1, 4]
    assert (written["iha_layers"], written["pseudo_heads"]) == (3, 3)
    assert written["mixing_parameters"] == 3 * (4 * 4 * 3 + 2 * 2 * 2 * 3 + 4 * 3)
    x = torch.arange(20)[None] % 31
    original = LlamaForCausalLM.from_pretrained(llama)(x).logits
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "iha")
    assert isinstance(converted, iha.models.IHAForCausalLM)
    assert (converted(x).logits - original).abs().max() <= 1e-5
    assert _run(tmp_path / "iha", tmp_path / "back", "--back", "--out", tmp_path / "out").exit_code == 0
    assert torch.equal(LlamaForCausalLM.from_pretrained(tmp_path / "back")(x).logits, original)


def test_schedule(llama: Path, tmp_path: Path) -> None:
    assert _run(llama, tmp_path / "iha", "--schedule", "4:1", "--out", tmp_path / "out").exit_code == 0
    schedule = json.loads((tmp_path / "iha" / "config.json").read_text())["layer_schedule"]
    assert [layer["mechanism"] for layer in schedule] == ["iha"] * 4 + ["multihead", "iha"]


def test_bad_input(llama: Path, tmp_path: Path) -> None:
    for arguments, message in [
        ((tmp_path / "nothing",), "no checkpoint directory"),
        ((llama, "--layers", "2-"), "numbers and ranges"),
        ((llama, "--layers", "9"), "no layer 9"),
        ((llama, "--layers", "0-99999999999"), "numbers and ranges"),
        ((llama, "--seed", "-1"), "--seed"),
        ((llama, "--pseudo-heads", "0"), "num_pseudo_heads"),
        ((llama, "--causal", "never"), "causal"),
        ((llama, "--back"), "no IHA checkpoint"),
    ]:
        result = _run(arguments[0], tmp_path / "iha", *arguments[1:], "--out", tmp_path / "out")
        assert result.exit_code == 2, (arguments, result.output)
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama"]


def test_json_on_stdout(llama: Path, tmp_path: Path) -> None:
    result = _run(llama, tmp_path / "iha", "--json", "--out", tmp_path / "out")
    assert json.loads(result.stdout) == json.loads((tmp_path / "out" / "convert.json").read_text())
