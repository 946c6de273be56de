"""A config.json from outside: whatever stands in it, there is a model or one ValueError that names the field."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_config
from transformers import AutoConfig

from iha.models import IHAConfig, IHAForCausalLM

FIELDS = sorted(field.name for field in dataclasses.fields(IHAConfig) if field.init)
HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=5),
    st.sampled_from(["4", "", "NaN", "relu9", "float99", "int8", "dynamic", "iha", "multihead", 0, -1, 1e308, 100_000]),
    st.lists(st.integers(-1, 5), max_size=4), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=1) | st.dictionaries(st.just("a"), inner)),
)  # fmt: skip


@settings(max_examples=250)
@given(st.dictionaries(st.sampled_from([*FIELDS, "dtype", "rope_theta"]), HOSTILE, min_size=1, max_size=3))
def test_any_field_can_hold_anything(fields: dict[str, Any]) -> None:
    """In Python, and through a file: the same configuration or a ValueError."""
    raw = {**json.loads(tiny_config().to_json_string(use_diff=False)), "layer_schedule": None, **fields}
    raw = {name: value for name, value in raw.items() if name not in ("model_type", "transformers_version")}
    try:
        config = IHAConfig(**raw)
    except ValueError:
        return
    assert len(config.layers) == config.num_hidden_layers <= 10_000
    with tempfile.TemporaryDirectory() as directory:
        config.save_pretrained(directory)
        assert IHAConfig.from_pretrained(directory).layer_schedule == config.layer_schedule
    if config.hidden_size * config.vocab_size < 1 << 30 and config.num_hidden_layers < 9:
        with torch.device("meta"):
            IHAForCausalLM(config)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"hidden_size": "256"}, "'hidden_size' expected int, got str .value: '256'"),
        ({"hidden_size": float("nan")}, "'hidden_size' expected int, got float .value: nan"),
        ({"vocab_size": 10**30}, "vocab_size must be at most"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers must be at most 10000, got 100000"),
        ({"num_attention_heads": True}, "num_attention_heads.*True"),
        ({"hidden_act": "relu9"}, "hidden_act must be one of .* got 'relu9'"),
        ({"dtype": "float99"}, "dtype must be the name of a floating-point type of torch, got 'float99'"),
        ({"dtype": "int8"}, "dtype .* got 'int8'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a positive number, got nan"),
        ({"initializer_range": -1.0}, "initializer_range must be a positive number, got -1.0"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": float("inf")}}, "rope_theta must be a positive"),
        ({"rope_parameters": "default"}, "rope_parameters.*'default'"),
        ({"rope_theta": 0}, "rope_theta must be a positive number, got 0"),
        ({"layer_schedule": {"a": 1}}, "layer_schedule.*'a': 1"),
        ({"layer_schedule": [[[]]] * 3}, "layer_schedule"),
        ({"layer_schedule": [{"mechanism": "mamba", "window": 1, "num_pseudo_heads": 1}] * 3}, "layer 0.*'mamba'"),
        ({"layer_schedule": [{"mechanism": "iha", "window": 2.5, "num_pseudo_heads": 1}] * 3}, "layer 0.*window.*2.5"),
        ({"window": 2.5}, "window.* 2.5"),
        ({"use_cache": "yes"}, "'use_cache' expected bool, got str .value: 'yes'"),
        ({"num_pseudo_heads": [2, "2", 2]}, "num_pseudo_heads.*'2'"),
        ({"hidden_size": 3, "num_attention_heads": 4, "num_key_value_heads": 4}, "heads of 0 features"),
        ({"eos_token_id": "end"}, "eos_token_id"),
    ],
)
def test_the_field_and_its_value_are_named(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        tiny_config(**fields)


def test_older_names_in_a_file_are_read(tmp_path: Path) -> None:
    tiny_config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    raw["layer_schedule"][2]["mechanism"] = "mha"
    path.write_text(json.dumps(raw))
    assert AutoConfig.from_pretrained(tmp_path).layer_schedule[2]["mechanism"] == "multihead"
