"""The configuration: schedules, round trips, and malformed ones refused with the value that is wrong."""

from typing import Any

import pytest
from tiny import tiny_config
from transformers import AutoConfig

from iha.bench.models import llama_like
from iha.models import IHAConfig, preset


def _kinds(config: IHAConfig) -> list[tuple[str, int | None, int]]:
    return [(s["mechanism"], s["window"], s["num_pseudo_heads"]) for s in config.layer_schedule]


def test_the_papers_schedules() -> None:
    local, whole = ("iha", 2048 // 8, 2), ("multihead", None, 1)
    assert _kinds(IHAConfig(num_hidden_layers=6)) == [local] * 4 + [whole, local]
    assert _kinds(IHAConfig(num_hidden_layers=6, num_pseudo_heads=4))[0] == ("iha", 2048 // 32, 4)
    assert _kinds(IHAConfig(attention="global")) == [whole] * 5
    assert _kinds(IHAConfig(attention="global_local")) == [("multihead", 512, 1)] * 4 + [whole]
    assert _kinds(IHAConfig(attention="talking_heads")) == [("talking_heads", None, 1)] * 5
    assert _kinds(IHAConfig(window=0, global_every=None)) == [("iha", None, 2)] * 5
    assert _kinds(IHAConfig(window=9, global_every=2, num_pseudo_heads=[3, 1, 2, 1, 4]))[::2] == [
        ("iha", 9, 3), ("iha", 9, 2), ("iha", 9, 4)
    ]  # fmt: skip


def test_a_schedule_of_ones_own() -> None:
    layers = [
        {"mechanism": "differential", "window": 7, "num_pseudo_heads": 1},
        {"mechanism": "iha", "window": None, "num_pseudo_heads": 3},
    ]
    config = IHAConfig(num_hidden_layers=2, layer_schedule=layers)
    assert config.layer_schedule == layers
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert config.sliding_window == 7  # what transformers' caches keep one less of


def test_round_trip(tmp_path: Any) -> None:
    config = tiny_config("iha-token", rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0})
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, IHAConfig)
    assert {**loaded.to_dict(), "_name_or_path": ""} == config.to_dict()


def test_rope_theta_moves_to_rope_parameters() -> None:
    assert IHAConfig(rope_theta=1234.0).rope_parameters == {"rope_type": "default", "rope_theta": 1234.0}
    assert IHAConfig().rope_parameters["rope_theta"] == 500_000.0


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"attention": "flash"}, "attention must be one of .* got 'flash'"),
        ({"causal": "sideways"}, "causal must be one of .* got 'sideways'"),
        ({"rope_positions": "none"}, "rope_positions"),
        ({"collapse": "half"}, "collapse must be one of"),
        ({"attention_gate": "tanh"}, "attention_gate must be one of .* got 'tanh'"),
        ({"mixing_init": "zeros"}, "mixing_init must be one of"),
        ({"mixing_init": "warm_start"}, "warm_start"),
        ({"num_pseudo_heads": 0}, "num_pseudo_heads must be at least 1, got 0"),
        ({"num_pseudo_heads": 33}, "leaves no window"),
        ({"num_pseudo_heads": [1, 2]}, "one a layer"),
        ({"window": -1}, "window"),
        ({"hidden_size": 0}, "hidden_size must be at least 1, got 0"),
        ({"num_attention_heads": 0}, "num_attention_heads must be at least 1"),
        ({"num_attention_heads": 8, "num_key_value_heads": 3}, "num_key_value_heads must divide"),
        ({"head_dim": 7}, "head_dim must be even, got 7"),
        ({"attention_dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.1}, r"dropout must be in \[0, 1\), got -0.1"),
        ({"attention_dropout": 0.1, "attention": "talking_heads"}, "0.1, but talking_heads layers have no dropout"),
        ({"attention_dropout": 0.1, "attention": "differential"}, "0.1, but differential layers have no dropout"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rope_type"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial"),
        ({"layer_schedule": [{"mechanism": "iha"}] * 5}, "layer 0 of layer_schedule must be"),
        ({"layer_schedule": [{"mechanism": "magic", "window": None, "num_pseudo_heads": 1}] * 5}, "layer 0"),
        ({"layer_schedule": [{"mechanism": "multihead", "window": 0, "num_pseudo_heads": 1}] * 5}, "window"),
        ({"layer_schedule": [{"mechanism": "multihead", "window": 3, "num_pseudo_heads": 1}]}, "has 1 layers"),
    ],
)
def test_malformed(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        IHAConfig(**fields)


@pytest.mark.parametrize(
    "fields", [{"hidden_size": "wide"}, {"use_cache": "yes"}, {"num_pseudo_heads": 1.5}, {"causal": None}]
)
def test_types_are_strict(fields: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(fields))):
        IHAConfig(**fields)


def test_the_llama_beside_a_model_has_its_size() -> None:
    config = preset("1m", gated_mlp=True)
    llama = llama_like(config)
    assert (llama.hidden_size, llama.num_hidden_layers, llama.intermediate_size) == (96, 5, 384)
    assert llama.rope_parameters == config.rope_parameters


def test_no_tensor_parallel_plan_splits_heads() -> None:
    """Mixing needs all heads: a plan that gives each rank some of them would be wrong without an error."""
    assert not any("self_attn" in name for name in IHAConfig.base_model_tp_plan)
