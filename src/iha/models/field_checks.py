"""Checks of each configuration field on its own: a config.json is untrusted input."""

import math
from typing import Any

import torch
from transformers.activations import ACT2FN

from iha.layers.initialisation import INITIALISATIONS
from iha.layers.interleaved import COLLAPSES
from iha.ops.checks import ROPE_POSITIONS
from iha.ops.output import GATES

ATTENTIONS = ("iha", "global", "global_local", "paired_heads", "talking_heads", "differential")
CHOICES: dict[str, tuple[Any, ...]] = {
    "attention": ATTENTIONS,
    "rope_positions": ROPE_POSITIONS,
    "collapse": COLLAPSES,
    "mixing_init": tuple(INITIALISATIONS),
    "hidden_act": tuple(ACT2FN),
    "attention_gate": (None, *GATES),
}
# Upper limits; anything larger is taken for a mistake. Building a model of 100 000 layers would take minutes.
SIZES = {
    "vocab_size": 1 << 31,
    "hidden_size": 1 << 24,
    "intermediate_size": 1 << 26,
    "num_hidden_layers": 10_000,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "max_position_embeddings": 1 << 40,
    "global_every": 1 << 31,
    "num_pseudo_heads": 1 << 10,
    "num_pseudo_keys": 1 << 10,
    "num_mixed_heads": 1 << 16,
}


def check_fields(config: Any) -> None:
    """ValueError with name and value of the first invalid field. `@strict` has already checked the types."""
    for name, largest in SIZES.items():
        value = getattr(config, name)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
            if number is not None and number > largest:
                raise ValueError(f"{name} must be at most {largest}, got {number}")
    for name, allowed in {**CHOICES, "causal": config.causalities}.items():
        if (value := getattr(config, name)) not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    if config.window is not None and not 0 <= config.window <= 1 << 40:
        raise ValueError(
            f"window must be a number of tokens, None for the paper's or 0 for none, got {config.window!r}"
        )
    _check_positive("rms_norm_eps", config.rms_norm_eps)
    _check_positive("initializer_range", config.initializer_range)


def check_rope(parameters: dict[str, Any], rope_types: tuple[str, ...]) -> None:
    """Check `rope_parameters` after `transformers` has filled in defaults."""
    rope_type = parameters.get("rope_type", "default")
    if rope_type not in rope_types:
        raise ValueError(
            f"rope_parameters: rope_type must be one of {rope_types}, whose frequencies do not depend on the length; "
            f"got {rope_type!r}"
        )
    for name, value in parameters.items():
        if name in ("rope_type", "type", "truncate"):
            continue
        _check_positive(f"rope_parameters: {name}", value)
    if parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("rope_parameters: partial_rotary_factor other than 1 is not supported")


def check_dtype(dtype: Any) -> None:
    """Accept a floating-point dtype, by its name as in config.json or as a torch.dtype."""
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if dtype is not None and dtype != "auto" and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ValueError(f"dtype must be the name of a floating-point type of torch, got {dtype!r}")


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
