"""FLOPs of a training step, and what this device can do: for MFU and for `iha plan`."""

import time
from functools import lru_cache

import torch

from iha.accounting.flops import schedule_flops
from iha.accounting.gpus import GPUS
from iha.accounting.mechanisms import AttentionShape
from iha.layers.schedule import LayerSpec, Schedule
from iha.models.configuration import IHAConfig


def attention_shape(config: IHAConfig) -> AttentionShape:
    return AttentionShape(
        config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim,
        causal=config.causal, collapse=config.collapse, bias=config.attention_bias, gate=config.attention_gate,  # type: ignore[arg-type]
    )  # fmt: skip


def schedule_of(config: IHAConfig) -> Schedule:
    return tuple(LayerSpec(**layer) for layer in config.layer_schedule or [])


def forward_flops(config: IHAConfig, num_tokens: int) -> int:
    """Forward FLOPs of one sequence of N tokens: attention over visible pairs, feed-forward, output head."""
    attention = schedule_flops(attention_shape(config), schedule_of(config), num_tokens).total
    matrices = 3 if config.gated_mlp else 2
    feed_forward = 2 * matrices * config.hidden_size * config.intermediate_size * config.num_hidden_layers
    return attention + num_tokens * (feed_forward + 2 * config.hidden_size * config.vocab_size)


def training_flops(config: IHAConfig, num_tokens: int) -> int:
    """Forward and backward of one sequence, without what is computed twice to save memory: the convention of MFU."""
    return 3 * forward_flops(config, num_tokens)


@lru_cache(maxsize=1)
def peak_flops() -> float:
    """Peak FLOP/s of this device: from the data sheet of known GPUs, else measured on a large matrix product."""
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name().lower()
        for known, gpu in GPUS.items():
            if known in name:
                return gpu.flops
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(1024, 1024, device=device)
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - started)
    return 2 * 1024**3 / best
