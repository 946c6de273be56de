"""Model sizes by name. `paper-2.4b` is the paper's model; the smaller ones have its proportions.

An ungated feed-forward of four times the width and tied embeddings give the paper's parameter count (2.373 B).
"""

from typing import Any

from iha.models.configuration import IHAConfig

# The paper does not say which activation its two-matrix feed-forward has.
_COMMON: dict[str, Any] = {"hidden_act": "gelu", "gated_mlp": False, "tie_word_embeddings": True}

PRESETS: dict[str, dict[str, Any]] = {
    "1m": {"hidden_size": 96, "num_hidden_layers": 5, "num_attention_heads": 6, "vocab_size": 4096},
    "10m": {"hidden_size": 256, "num_hidden_layers": 10, "num_attention_heads": 8, "vocab_size": 8192},
    "50m": {"hidden_size": 512, "num_hidden_layers": 13, "num_attention_heads": 8, "vocab_size": 16384},
    "160m": {"hidden_size": 768, "num_hidden_layers": 17, "num_attention_heads": 12, "vocab_size": 50304},
    "paper-2.4b": {
        "hidden_size": 2560,
        "num_hidden_layers": 26,
        "num_attention_heads": 20,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    },
}


def preset(name: str, **overrides: Any) -> IHAConfig:
    """The configuration of this name; any field can be overridden."""
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    fields = {"max_position_embeddings": 2048, **_COMMON, **PRESETS[name]}
    fields["intermediate_size"] = 4 * overrides.get("hidden_size", fields["hidden_size"])
    return IHAConfig(**{**fields, **overrides})
