"""Configurations there and back: every field that the source's own class knows survives."""

from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from convert.originals import SOURCES
from iha.convert.architectures import ARCHITECTURES, from_iha, to_iha
from iha.models import IHAConfig


def raw(name: str, **changes: Any) -> dict[str, Any]:
    return {**SOURCES[name].to_dict(), **changes}


@pytest.mark.parametrize("name", [name for name in SOURCES if SOURCES[name].model_type == "iha"])
def test_a_model_of_our_own_comes_back_as_it_was(name: str) -> None:
    assert from_iha(to_iha(raw(name), num_pseudo_heads=2)) == raw(name)


@pytest.mark.parametrize("name", [name for name in SOURCES if SOURCES[name].model_type != "iha"])
def test_there_and_back_is_the_same_configuration(name: str) -> None:
    source = SOURCES[name]
    back = from_iha(to_iha(raw(name), num_pseudo_heads=2))
    again = CONFIG_MAPPING[back.pop("model_type")](**back)
    assert type(again) is type(source)
    assert back["architectures"] == [ARCHITECTURES[source.model_type]]
    unused = {"architectures", "max_window_layers", "sliding_window", "head_dim"}  # compared below, by what they mean
    one, other = (c.to_dict() for c in (again, source))
    assert {k: v for k, v in one.items() if k not in unused} == {k: v for k, v in other.items() if k not in unused}
    width = source.hidden_size // source.num_attention_heads
    assert again.head_dim == (getattr(source, "head_dim", None) or width)
    if source.model_type == "mistral" or getattr(source, "use_sliding_window", False):
        assert again.sliding_window == source.sliding_window


WINDOWS = {
    "llama": [None, None, None],
    "mistral": [5, 5, 5],
    "mistral-global": [None, None, None],
    "qwen2-sliding": [None, 4, 4],  # layers from max_window_layers on
    "qwen3-sliding": [None, None, 6],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_kept_layer_by_layer(name: str) -> None:
    config = to_iha(raw(name), num_pseudo_heads=2)
    assert [layer.window for layer in config.layers] == WINDOWS[name]


@pytest.mark.parametrize(
    ("name", "biases"),
    [("llama", (False, False)), ("llama-biases", (True, True)), ("qwen2", (True, False)), ("qwen3", (False, False))],
)
def test_biases_and_norms_are_where_the_source_has_them(name: str, biases: tuple[bool, bool]) -> None:
    """Of queries, keys and values, and of the output: Qwen2 has the first without the second."""
    config = to_iha(raw(name), num_pseudo_heads=2)
    out = config.attention_bias if config.attention_out_bias is None else config.attention_out_bias
    assert (config.attention_bias, out) == biases
    assert config.qk_norm == (name == "qwen3")


def test_chosen_layers_and_pseudo_heads() -> None:
    def mechanisms(**options: Any) -> list[tuple[str, int]]:
        options = {"num_pseudo_heads": 2, **options}
        return [(spec.mechanism, spec.num_pseudo_heads) for spec in to_iha(long, **options).layers]

    long = raw("llama", num_hidden_layers=6)
    assert mechanisms() == [("iha", 2)] * 6
    assert mechanisms(schedule="4:1") == [("iha", 2)] * 4 + [("multihead", 1), ("iha", 2)]
    assert mechanisms(layers=[1], num_pseudo_heads=[1, 3, 1, 1, 1, 1])[1] == ("iha", 3)
    assert mechanisms(layers=[5, 0]) == [("iha", 2)] + [("multihead", 1)] * 4 + [("iha", 2)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "cannot convert model_type 'gpt2'; known are llama, mistral, qwen2, qwen3"),
        ({"model_type": None}, "cannot convert model_type None"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "only the language model LlamaForCausalLM is known"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rope_type 'dynamic'"),
        ({"dtype": "int8"}, "cannot convert dtype"),
    ],
)
def test_what_cannot_be_converted_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_iha(raw("llama", **changes), num_pseudo_heads=2)


PLAIN: dict[str, Any] = {
    "vocab_size": 67, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_pseudo_heads": 1, "gated_mlp": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "windows", "model_type"),
    [
        ({}, (None, None), "llama"),
        ({"attention_bias": True, "mlp_bias": True}, (None, None), "llama"),
        ({}, (7, 7), "mistral"),
        ({"attention_bias": True, "attention_out_bias": False}, (None, 7), "qwen2"),
        ({"qk_norm": True}, (7, None), "qwen3"),
    ],
)
def test_a_model_of_our_own_finds_the_architecture_that_has_its_parts(
    fields: dict[str, Any], windows: tuple[int | None, ...], model_type: str
) -> None:
    schedule = [{"mechanism": "iha", "window": window, "num_pseudo_heads": 1} for window in windows]
    assert from_iha(IHAConfig(**PLAIN, **fields, layer_schedule=schedule))["model_type"] == model_type


@pytest.mark.parametrize(
    ("fields", "windows", "message"),
    [
        ({"gated_mlp": False}, (None, None), "gated_mlp=False"),
        ({}, (7, 5), r"windows of several sizes cannot be exported: \[7, 5\]"),
        ({}, (7, None), "no known architecture has this combination"),
        ({"qk_norm": True, "mlp_bias": True}, (None, None), "no known architecture has this combination"),
    ],
)
def test_and_is_refused_where_there_is_none(
    fields: dict[str, Any], windows: tuple[int | None, ...], message: str
) -> None:
    schedule = [{"mechanism": "iha", "window": window, "num_pseudo_heads": 1} for window in windows]
    with pytest.raises(ValueError, match=message):
        from_iha(IHAConfig(**{**PLAIN, **fields}, layer_schedule=schedule))
