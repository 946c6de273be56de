"""Small checkpoints of every architecture that can be converted, and what they compute."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from iha.models import IHAConfig

SIZES: dict[str, Any] = {
    "vocab_size": 67, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.15, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
SOURCES = {
    "llama": LlamaConfig(**SIZES),
    "llama-mha-tied": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}, tie_word_embeddings=True),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama3-rope": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama-yarn-gelu": LlamaConfig(**SIZES, rope_parameters=YARN, hidden_act="gelu"),
    "llama-wide-heads": LlamaConfig(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=5),
    "mistral-global": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-sliding": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=True),
    "qwen3-sliding": Qwen3Config(**SIZES, head_dim=8, use_sliding_window=True, sliding_window=6, max_window_layers=2),
    "iha-global": IHAConfig(**SIZES, attention="global", gated_mlp=False, hidden_act="gelu"),
    "iha-global-local": IHAConfig(**SIZES, attention="global_local", window=5, global_every=2, qk_norm=True),
}


def written(directory: Path) -> dict[str, Path]:
    """Randomly initialised checkpoints; norms and biases too, which start at one and zero otherwise."""
    for name, config in SOURCES.items():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(directory / name, max_shard_size="20KB" if name == "qwen3" else "5GB")
    return {name: directory / name for name in SOURCES}


def original(path: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def tokens(N: int = 24) -> torch.Tensor:
    return torch.randint(0, 67, (2, N), generator=torch.Generator().manual_seed(0))


def decoded(model: PreTrainedModel, x: torch.Tensor, prompt: int = 9) -> torch.Tensor:
    """The logits of cached decoding: a prompt, then token by token."""
    out = model(x[:, :prompt], use_cache=True)
    logits = [out.logits]
    for t in range(prompt, x.shape[1]):
        out = model(x[:, t : t + 1], past_key_values=out.past_key_values)
        logits.append(out.logits)
    return torch.cat(logits, dim=1)
