"""Tiny models whose logits differ enough for greedy choices to mean something."""

from typing import Any

import torch

from iha.models import IHAConfig, IHAForCausalLM

VOCABULARY = 61
_TOKEN = {"attention": "iha", "causal": "token", "rope_positions": "token"}
_RANDOM = {"collapse": "full", "mixing_init": "random"}
# Every kind of layer the model can have, with windows that bind on a dozen tokens.
KINDS: dict[str, dict[str, Any]] = {
    "iha": {"attention": "iha", "window": 4, "global_every": 3},
    "iha-token": {**_TOKEN, "window": 4, "global_every": 3},
    "iha-everywhere": {"attention": "iha", "window": 0, "global_every": None, "num_pseudo_heads": [3, 2, 1]},
    "iha-full-collapse": {"attention": "iha", "window": 5, "global_every": None, "collapse": "full"},
    "iha-uneven": {**_TOKEN, "window": 4, "global_every": 3, "num_pseudo_heads": 1, "num_pseudo_keys": 3},
    "iha-fewer-heads": {"attention": "iha", "window": 4, "global_every": None, "num_mixed_heads": 2, **_RANDOM},
    "global": {"attention": "global"},
    "global_local": {"attention": "global_local", "window": 4, "global_every": 2},
    "paired_heads": {"attention": "paired_heads"},
    "talking_heads": {"attention": "talking_heads"},
    "differential": {"attention": "differential"},
    "gated-exclusive": {
        "attention": "iha",
        "window": 4,
        "global_every": 3,
        "attention_gate": "elementwise",
        "exclusive_attention": True,
    },
}


def tiny_config(kind: str = "iha", **overrides: Any) -> IHAConfig:
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2,
        "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    return IHAConfig(**{**fields, **KINDS[kind], **overrides})


def tiny_model(kind: str = "iha", seed: int = 0, **overrides: Any) -> IHAForCausalLM:
    torch.manual_seed(seed)
    return IHAForCausalLM(tiny_config(kind, **overrides)).eval()


def tokens(B: int, N: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (B, N), generator=torch.Generator().manual_seed(seed))


def assert_learns(model: torch.nn.Module, x: torch.Tensor, **labels: torch.Tensor) -> None:
    """Four steps on one batch: the loss falls, and every alpha has a gradient."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        loss = model(x, **labels).loss
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for name, p in model.named_parameters() if "alpha" in name)
