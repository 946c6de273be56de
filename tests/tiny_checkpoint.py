"""A tiny Llama on disk for tests of files: written without building a model, so that fuzzers can make thousands."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

E, F, V, H, G, L = 8, 12, 11, 2, 1, 2
CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V, "hidden_size": E,
    "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G,
    "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
    "bos_token_id": None, "eos_token_id": None, "dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip


def tensors() -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, E), "lm_head.weight": (V, E)}
    shapes["model.norm.weight"] = (E,)
    for layer in range(L):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}{name}_layernorm.weight": (E,) for name in ("input", "post_attention")}
        shapes |= {f"{prefix}self_attn.{name}_proj.weight": (E, E) for name in "qo"}
        shapes |= {f"{prefix}self_attn.{name}_proj.weight": (E * G // H, E) for name in "kv"}
        shapes |= {f"{prefix}mlp.{name}_proj.weight": (F, E) for name in ("gate", "up")}
        shapes[f"{prefix}mlp.down_proj.weight"] = (E, F)
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write(directory: Path, config: dict[str, Any] | None = None) -> Path:
    directory.mkdir(parents=True)
    save_file(tensors(), directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    (directory / "tokenizer_config.json").write_text("{}")
    return directory


def write_sharded(directory: Path, weight_map: object = None) -> Path:
    """Two shards and their index, or an index that says something else."""
    write(directory)
    (directory / "model.safetensors").unlink()
    everything = tensors()
    halves = [dict(list(everything.items())[:5]), dict(list(everything.items())[5:])]
    honest = {}
    for number, half in enumerate(halves, 1):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file(half, directory / name, metadata={"format": "pt"})
        honest |= dict.fromkeys(half, name)
    index = {"metadata": {}, "weight_map": honest if weight_map is None else weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, to see that nothing changed."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}
