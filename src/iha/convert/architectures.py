"""Translation of Llama, Mistral, Qwen2 and Qwen3 configurations, and of our own without IHA, to `IHAConfig` and back.

Tensor names are the same on both sides, so only configurations need translation.
"""

from typing import Any

from iha.layers.schedule import LayerSpec, is_global
from iha.models.configuration import ROPE_TYPES, IHAConfig

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "iha": "IHAForCausalLM",  # with multi-head attention in every layer, e.g. of `iha train model.attention=global`
}
_SAME = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "use_cache", "pad_token_id",
    "bos_token_id", "eos_token_id", "tie_word_embeddings", "rope_parameters", "dtype",
)  # fmt: skip


def to_iha(
    raw: dict[str, Any],  # the source's config.json
    *,
    num_pseudo_heads: int | list[int],
    num_pseudo_keys: int | None = None,
    layers: list[int] | None = None,
    schedule: str = "all",
    causal: str = "token",
    collapse: str = "per_head",
) -> IHAConfig:
    """The configuration of the converted model.

    Args:
        raw: the contents of the source's config.json.
        num_pseudo_heads: P of the converted layers, one number or one per layer of the model.
        num_pseudo_keys: P_k of the converted layers, if it differs from P; needs causal="token".
        layers: which layers become IHA; the others stay multi-head attention. None: those that `schedule` names.
        schedule: "all", or "4:1": of every five layers, four become IHA and one stays.
        causal, collapse: of the IHA layers. Windows are kept: another window would compute another function.
    """
    from transformers import CONFIG_MAPPING

    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise ValueError(f"cannot convert model_type {model_type!r}; known are {', '.join(ARCHITECTURES)}")
    if (named := raw.get("architectures")) and ARCHITECTURES[model_type] not in named:
        raise ValueError(f"cannot convert {named}: only the language model {ARCHITECTURES[model_type]} is known")
    if raw.get("quantization_config"):
        raise ValueError("cannot convert a quantised checkpoint (config.json has a quantization_config)")
    source = CONFIG_MAPPING[model_type](**{k: v for k, v in raw.items() if k not in ("model_type", "auto_map")})
    if source.dtype is not None and not getattr(source.dtype, "is_floating_point", False):
        raise ValueError(f"cannot convert dtype {source.dtype!r}: weights must be of a floating-point type")
    rope_type = source.rope_parameters["rope_type"]
    if rope_type not in ROPE_TYPES:
        raise ValueError(f"cannot convert rope_type {rope_type!r}; known are {', '.join(ROPE_TYPES)}")

    L = source.num_hidden_layers
    chosen = _chosen(layers, schedule, L)
    pseudo_heads = num_pseudo_heads if isinstance(num_pseudo_heads, list) else [num_pseudo_heads] * L
    if len(pseudo_heads) != L or min(pseudo_heads) < 1:
        raise ValueError(
            f"num_pseudo_heads must be at least 1, one number or one for each of {L} layers: {num_pseudo_heads}"
        )
    layer_schedule = [
        LayerSpec("iha", window, pseudo_heads[index], num_pseudo_keys) if index in chosen else LayerSpec(window=window)
        for index, window in enumerate(_windows(source))
    ]
    bias = True if model_type == "qwen2" else bool(getattr(source, "attention_bias", False))
    return IHAConfig(
        **{name: getattr(source, name) for name in _SAME},
        head_dim=getattr(source, "head_dim", None),
        attention_bias=bias,
        attention_out_bias=False if model_type == "qwen2" else getattr(source, "attention_out_bias", None),
        mlp_bias=bool(getattr(source, "mlp_bias", False)),
        qk_norm=model_type == "qwen3" or bool(getattr(source, "qk_norm", False)),
        gated_mlp=bool(getattr(source, "gated_mlp", True)),
        attention_gate=getattr(source, "attention_gate", None),
        exclusive_attention=bool(getattr(source, "exclusive_attention", False)),
        attention="iha",
        num_pseudo_heads=num_pseudo_heads,
        num_pseudo_keys=num_pseudo_keys,
        layer_schedule=[spec.as_data() for spec in layer_schedule],
        causal=causal,
        collapse=collapse,
        rope_positions="token",  # virtual positions rotate the copies of a key differently: not exact
        mixing_init="warm_start",
        converted_from=raw,
    )


def from_iha(config: IHAConfig) -> dict[str, Any]:
    """The config.json of the plain architecture that has this configuration apart from mixing."""
    if (config.converted_from or {}).get("model_type") == IHAConfig.model_type:
        return dict(config.converted_from or {})
    if not config.gated_mlp:
        raise ValueError("gated_mlp=False: none of the known architectures has a feed-forward without a gate")
    windows = [spec.window for spec in config.layers]
    if len(set(windows) - {None}) > 1:
        raise ValueError(f"windows of several sizes cannot be exported: {windows}")
    model_type = (config.converted_from or {}).get("model_type") or _plain_type(config, windows)
    raw = {name: getattr(config, name) for name in _SAME if name != "dtype"}
    raw |= {"model_type": model_type, "architectures": [ARCHITECTURES[model_type]], "head_dim": config.head_dim}
    if config.dtype is not None:
        raw["dtype"] = str(config.dtype).removeprefix("torch.")
    if model_type in ("llama", "qwen3"):
        raw["attention_bias"] = config.attention_bias
    if model_type == "llama":
        raw["mlp_bias"] = config.mlp_bias
    if model_type == "mistral":
        raw["sliding_window"] = windows[0]
    if model_type in ("qwen2", "qwen3"):
        raw |= {"layer_types": ["full_attention" if w is None else "sliding_attention" for w in windows]}
        raw |= {"use_sliding_window": any(windows), "sliding_window": max(w or 0 for w in windows) or None}
    return raw


def _plain_type(config: IHAConfig, windows: list[int | None]) -> str:
    out_bias = config.attention_bias if config.attention_out_bias is None else config.attention_out_bias
    if config.qk_norm and out_bias == config.attention_bias and not config.mlp_bias:
        return "qwen3"
    if config.attention_bias and not out_bias and not config.qk_norm and not config.mlp_bias:
        return "qwen2"
    if not config.qk_norm and out_bias == config.attention_bias:
        if not any(windows):
            return "llama"
        if None not in windows and not config.attention_bias and not config.mlp_bias:
            return "mistral"
    raise ValueError("no known architecture has this combination of biases, QK-norm and windows")


def _windows(source: Any) -> list[int | None]:
    """Per layer, in tokens, including the query's own, as in `LayerSpec`."""
    if isinstance(source, IHAConfig):
        if other := [spec.mechanism for spec in source.layers if spec.mechanism != LayerSpec().mechanism]:
            raise ValueError(f"cannot convert layers of {other[0]}: only multi-head attention can become IHA exactly")
        return [spec.window for spec in source.layers]
    window, L = getattr(source, "sliding_window", None), source.num_hidden_layers
    if source.model_type == "mistral":
        return [window] * L
    layer_types = getattr(source, "layer_types", None) or ["full_attention"] * L
    return [window if kind == "sliding_attention" else None for kind in layer_types]


def _chosen(layers: list[int] | None, schedule: str, L: int) -> set[int]:
    if schedule not in ("all", "4:1"):
        raise ValueError(f"schedule must be 'all' or '4:1', got {schedule!r}")
    if layers is None:
        return {index for index in range(L) if schedule == "all" or not is_global(index)}
    if wrong := [index for index in layers if not 0 <= index < L]:
        raise ValueError(f"the model has layers 0 to {L - 1}, there is no layer {wrong[0]}")
    return set(layers)
