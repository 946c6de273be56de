"""Fewer pseudo-queries and pseudo-keys in the layers of an IHA model, without a change where the weights allow it.

The weight that R gives a removed pseudo-query goes to the kept one whose alpha_q is most like it, head by head. That is
exact if R has a zero there, and if the two are equal. A kept pseudo-key takes the mean of the values of those that are
removed for it. That is exact if all pseudo-keys of a head are equal and one is left. A warm start is both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.schedule import LayerSpec
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM


@dataclass(frozen=True)
class Kept:
    """What is left of one layer: indices of its pseudo-queries and pseudo-keys, and its window."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    window: int | None


def resized(model: IHAForCausalLM, kept: Mapping[int, Kept]) -> IHAForCausalLM:
    """The model with these layers (by number) resized. All other weights are shared with it, not copied."""
    layers, tensors = {}, {}
    for index, part in kept.items():
        attention = interleaved_layer(model, index)
        prefix, P, P_k = f"model.layers.{index}.self_attn.", len(part.queries), len(part.keys)
        layers[index] = replace(
            model.config.layers[index],
            window=part.window,
            num_pseudo_heads=P,
            num_pseudo_keys=None if P_k == P else P_k,
        )
        alpha_q, alpha_k, alpha_v, R = (tensor.detach() for tensor in attention.mixing)
        tensors[prefix + "alpha_q"], tensors[prefix + "collapse"] = with_queries(alpha_q, R, part.queries)
        tensors[prefix + "alpha_k"], tensors[prefix + "alpha_v"] = with_keys(alpha_k, alpha_v, part.keys)
    return rebuilt(model, layers, tensors)


def rebuilt(model: IHAForCausalLM, layers: Mapping[int, LayerSpec], tensors: Mapping[str, Tensor]) -> IHAForCausalLM:
    """The model with these layers (by number) and weights in place of its own. All other weights are shared with it."""
    require_token_index(model.config)
    schedule = [layers.get(index, spec).as_data() for index, spec in enumerate(model.config.layers)]
    derived = ("model_type", "layer_types", "sliding_window")
    fields = {name: value for name, value in model.config.to_dict().items() if name not in derived}
    with torch.device("meta"):
        other = IHAForCausalLM(IHAConfig(**{**fields, "layer_schedule": schedule}))
    other.load_state_dict({**model.state_dict(), **tensors}, assign=True)
    other.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq
    other.tie_weights()
    for name, parameter in model.named_parameters():
        other.get_parameter(name).requires_grad_(parameter.requires_grad)
    return other.train(model.training)


def interleaved_layer(model: IHAForCausalLM, index: int) -> InterleavedHeadAttention:
    """The attention of a layer with pseudo-heads; ValueError if it has none."""
    attention = model.model.layers[index].self_attn
    if not isinstance(attention, InterleavedHeadAttention):
        raise ValueError(f"layer {index} is {model.config.layers[index].mechanism}: it has no pseudo-heads to resize")
    return attention


def with_queries(alpha_q: Tensor, collapse: Tensor, kept: Sequence[int]) -> tuple[Tensor, Tensor]:
    """alpha_q (H, H', P) and R (H', P) or (H, H'*P) with these pseudo-queries only."""
    _, mixed, P = alpha_q.shape
    nearest = _nearest(alpha_q, kept)  # (H', P)
    R = collapse.reshape(-1, mixed, P)  # (1 or H, H', P)
    moved = R.new_zeros(*R.shape[:2], len(kept)).scatter_add_(2, nearest.expand(R.shape[0], -1, -1), R)
    return alpha_q[:, :, list(kept)].clone(), moved.reshape(collapse.shape[0], -1)


def with_keys(alpha_k: Tensor, alpha_v: Tensor, kept: Sequence[int]) -> tuple[Tensor, Tensor]:
    """alpha_k and alpha_v (G, G', P) with these pseudo-keys only."""
    nearest = _nearest(alpha_k, kept)  # (G', P)
    groups = F.one_hot(nearest, len(kept)).to(alpha_v.dtype)  # (G', P, kept)
    values = torch.einsum("mgp,gpk->mgk", alpha_v, groups) / groups.sum(dim=1)
    return alpha_k[:, :, list(kept)].clone(), values


def _nearest(alpha: Tensor, kept: Sequence[int]) -> Tensor:
    """Per mixed head and pseudo-head the place in `kept` of the one whose mixing is most like it, (H', P)."""
    P = alpha.shape[2]
    if not kept or not set(kept) <= set(range(P)) or len(set(kept)) != len(kept):
        raise ValueError(f"kept must be different indices below {P}, at least one, got {tuple(kept)}")
    distance = torch.cdist(alpha.permute(1, 2, 0), alpha[:, :, list(kept)].permute(1, 2, 0))  # (H', P, kept)
    nearest = distance.argmin(dim=-1)
    nearest[:, list(kept)] = torch.arange(len(kept), device=alpha.device)  # a kept one stays itself among its equals
    return nearest


def require_token_index(config: IHAConfig) -> None:
    """ValueError if pseudo-heads have virtual indices, which another number of them would shift."""
    if config.causal != "token" or config.rope_positions != "token":
        raise ValueError(
            f"causal={config.causal!r} and rope_positions={config.rope_positions!r}: another number of "
            "pseudo-heads would shift the virtual index of all others; both must be 'token'"
        )
