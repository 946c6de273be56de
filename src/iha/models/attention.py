"""The attention layers of the model, built from `iha.layers`, and what they share in one forward."""

from typing import Any

from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.call import Shared
from iha.models.configuration import IHAConfig
from iha.models.rotary import IHARotaryEmbedding
from iha.ops.rotary import Rotation, full_table, offset_tables, pseudo_head_offsets

# From attn_implementation of transformers to our backends. eager also returns attention weights; no backend does.
BACKENDS = {"eager": "auto", "sdpa": "auto", "flex_attention": "flex", "flash_attention_2": "flash"}


def backend_of(attn_implementation: str) -> str:
    """The backend behind an `attn_implementation`; ValueError for those that cannot run these layers."""
    if attn_implementation not in BACKENDS:
        raise ValueError(
            f'Specified `attn_implementation="{attn_implementation}"` is not supported: heads are mixed around '
            "attention, and kernels of the Hub, paged attention and serving engines ignore that; supported are "
            f"{', '.join(BACKENDS)}"
        )
    return BACKENDS[attn_implementation]


def build_layer(config: IHAConfig, layer_idx: int) -> SelfAttention:
    """The attention of one layer, by the schedule. Its RoPE comes from the model's tables."""
    spec = config.layers[layer_idx]
    own: dict[str, Any] = {}
    if config.attention_dropout:
        own["dropout"] = config.attention_dropout
    if spec.is_interleaved:
        own |= {"rope_positions": config.rope_positions, "collapse": config.collapse, "init": config.mixing_init}
    return spec.build(
        config.hidden_size,
        config.num_attention_heads,
        depth=layer_idx,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        bias=config.attention_bias,
        out_bias=config.attention_out_bias,
        qk_norm_eps=config.rms_norm_eps if config.qk_norm else None,
        causal=config.visibility(layer_idx).causal,
        gate=config.attention_gate,
        exclusive=config.exclusive_attention,
        **own,
    )


def shared_by_layers(
    config: IHAConfig, rotary: IHARotaryEmbedding, strides: frozenset[int], positions: Tensor
) -> Shared:
    """What layers with these rotary strides share, for new tokens at positions (1 or B, N)."""
    implementation = config._attn_implementation or "sdpa"
    backend = backend_of(implementation)
    rotations = {}
    for stride in strides:
        tokens = full_table(*rotary.table((stride * positions).unsqueeze(-1)))  # (1 or B, N, 1, D)
        offsets: tuple = ()
        if stride > 1:
            offsets = offset_tables(stride, rotary.offsets, pseudo_head_offsets(stride, positions.device))
        rotations[stride] = Rotation(tokens, *offsets)
    return Shared(rotations, backend, implementation == "eager")
