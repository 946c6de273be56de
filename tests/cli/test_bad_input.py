"""517 bad inputs were tried on the commands from outside, and 128 ended in a traceback. These are their kinds.

Whatever is wrong, a command says it in one line on stderr, exits with 2 and leaves nothing behind.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

import tiny_checkpoint as tiny
from iha.cli.main import app
from refusal import HUGE, refused

OPTIONS = [
    ("flops", "--tokens", HUGE), ("flops", "--tokens", "0"), ("flops", "--tokens", "-1"), ("flops", "--tokens", "1.5"),
    ("flops", "--heads", HUGE), ("flops", "--width", HUGE), ("flops", "--layers", HUGE),
    ("flops", "--layers", "100000000"),
    ("flops", "--pseudo-heads", HUGE), ("flops", "--window", HUGE), ("flops", "--window", "0"),
    ("flops", "--element-size", "0"), ("flops", "--element-size", HUGE), ("flops", "--head-dim", "-4"),
    ("flops", "--match", "x"), ("flops", "--schedule", "x"), ("flops", "--causal", ""), ("flops", "--unknown"),
    ("bench", "model", "--presets", "none"), ("bench", "model", "--presets", ""), ("bench", "model", "--rounds", "0"),
    ("bench", "model", "--tokens", "2"), ("bench", "model", "--new-tokens", "1"), ("bench", "model", "--threads", "0"),
    ("bench", "model", "--threads", "-1"), ("bench", "model", "--pseudo-heads", "0"),
    ("bench", "model", "--seed", "-1"),
    ("bench", "model", "--seed", HUGE), ("bench", "model", "--no-training", "--no-decoding"),
    ("bench", "model", "--presets", "2.4b", "--tokens", HUGE),
    ("bench", "attention", "--threads", "0"), ("bench", "attention", "--tokens", HUGE),
    ("bench", "attention", "--repeats", "0"), ("bench", "attention", "--head-dim", "0"),
    ("bench", "attention", "--pseudo-heads", ""), ("bench", "attention", "--dtype", "float128"),
    ("verify", "--only", "x"), ("verify", "--n-max", "0"), ("verify", "--k", "-1"), ("verify", "--seed", "-1"),
    ("verify", "--n-max", HUGE), ("verify", "--k", HUGE),
    ("synth", "nothing"), ("synth", "binary", "--scale", "x"), ("synth", "binary", "--heads", "x"),
    ("synth", "binary", "--mechanisms", "x"), ("synth", "binary", "--learning-rates", "nan"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", OPTIONS, ids=" ".join)
def test_options(arguments: tuple[str, ...], tmp_path: Path) -> None:
    refused([*arguments, "--out", tmp_path / "out"], tmp_path)


@pytest.mark.parametrize(
    "command", [("flops",), ("bench", "model"), ("bench", "attention"), ("verify",), ("synth", "binary")]
)
def test_out_is_checked_before_the_work(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        assert str(out)[:60] in refused([*command, "--out", out], tmp_path)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tiny.write(tmp_path_factory.mktemp("checkpoint") / "model")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")), pad_token="a"
    )
    tokenizer.save_pretrained(directory)
    return directory


NESTED: Any = 1
for _ in range(600):
    NESTED = [NESTED]
BAD_VALUES = ["x", -1, 0, 1.5, 10**30, [], {}, NESTED]
BAD_CONFIGS: list[dict[str, Any]] = [
    *({"num_hidden_layers": value} for value in [*BAD_VALUES, 100_000, None, True]),
    *({"hidden_size": value} for value in [*BAD_VALUES, None]),
    *({"num_attention_heads": value} for value in [*BAD_VALUES, 3]),
    *({"num_key_value_heads": value} for value in ["x", -1, 0, 1.5, 3, 10**30, [], {}]),
    *({"vocab_size": value} for value in BAD_VALUES),
    *({"intermediate_size": value} for value in BAD_VALUES),
    *({"head_dim": value} for value in ["x", -1, 0, 3, 1.5, 10**30, []]),
    *({"hidden_act": value} for value in ["nonsense", 3, None, [], {}]),
    *({"dtype": value} for value in ["float7", "int8", 3, []]),
    *({"rope_parameters": value} for value in ["x", 3, [], {"rope_type": "nonsense"}, {"rope_theta": "x"}]),
    *({"model_type": value} for value in ["nonsense", 3, None, [], {}]),
    *({"layer_types": value, "model_type": "qwen3"} for value in ["x", ["nonsense"] * tiny.L, ["full_attention"]]),
    {"rms_norm_eps": "x"}, {"rms_norm_eps": []}, {"max_position_embeddings": "x"}, {"tie_word_embeddings": "perhaps"},
]  # fmt: skip


def _identity(change: dict[str, Any]) -> str:
    return json.dumps(change)[:50]


def _with(checkpoint: Path, directory: Path, text: str) -> Path:
    source = directory / "model"
    source.mkdir()
    for path in checkpoint.iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    (source / "config.json").write_text(text, encoding="latin-1")
    return source


@pytest.mark.parametrize("change", BAD_CONFIGS, ids=_identity)
def test_configurations(change: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    source = _with(checkpoint, tmp_path, json.dumps({**tiny.CONFIG, **change}))
    refused(["convert", source, tmp_path / "iha", "--out", tmp_path / "out"], tmp_path)
    refused(["generate", source, "a", "--max-new-tokens", 2, "--out", tmp_path / "out"], tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "\xff\xfe", '{"hidden_size": NaN}', "[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000],
)
def test_files_that_are_no_configuration(text: str, checkpoint: Path, tmp_path: Path) -> None:
    source = _with(checkpoint, tmp_path, text)
    refused(["convert", source, tmp_path / "iha", "--out", tmp_path / "out"], tmp_path)
    refused(["generate", source, "a", "--out", tmp_path / "out"], tmp_path)


words = st.one_of(
    st.integers(-3, 40).map(str), st.integers(-(10**30), 10**30).map(str), st.floats().map(str), st.text(max_size=8),
    st.sampled_from(["virtual", "token", "none", "full", "per_head", "iha", "global", "paper", "exact", "2,4", "0-3"]),
)  # fmt: skip
flops_options = st.sampled_from(
    ["--width", "--heads", "--kv-heads", "--head-dim", "--tokens", "--pseudo-heads", "--window", "--match",
     "--schedule", "--layers", "--causal", "--collapse", "--element-size"]
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.tuples(flops_options, words), max_size=4))
def test_any_options_of_flops_give_tables_or_one_line(options: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        arguments = ["flops", *(word for pair in options for word in pair), "--out", str(out)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (0, 2), (arguments, result.output, result.exception)
        if result.exit_code == 2:
            assert result.stderr.count("\n") == 1
            assert not out.exists()
