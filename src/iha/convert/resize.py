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
    config = _config(model.config, kept)
    with torch.device("meta"):
        smaller = IHAForCausalLM(config)
    tensors = dict(model.state_dict())
    for index, part in kept.items():
        prefix = f"model.layers.{index}.self_attn."
        alpha_q, alpha_k, alpha_v, R = (tensors[prefix + n] for n in ("alpha_q", "alpha_k", "alpha_v", "collapse"))
        tensors[prefix + "alpha_q"], tensors[prefix + "collapse"] = with_queries(alpha_q, R, part.queries)
        tensors[prefix + "alpha_k"], tensors[prefix + "alpha_v"] = with_keys(alpha_k, alpha_v, part.keys)
    smaller.load_state_dict(tensors, assign=True)
    smaller.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq
    smaller.tie_weights()
    return smaller.train(model.training)


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
    """ValueError if pseudo-heads have virtual indices, which a removal would shift."""
    if config.causal != "token" or config.rope_positions != "token":
        raise ValueError(
            f"causal={config.causal!r} and rope_positions={config.rope_positions!r}: removing a pseudo-head would "
            "shift the virtual index of all others; both must be 'token'"
        )


def _config(config: IHAConfig, kept: Mapping[int, Kept]) -> IHAConfig:
    require_token_index(config)
    layers = list(config.layers)
    for index, part in kept.items():
        if not layers[index].is_interleaved:
            raise ValueError(f"layer {index} is {layers[index].mechanism}: it has no pseudo-heads to resize")
        P, P_k = len(part.queries), len(part.keys)
        layers[index] = replace(
            layers[index], window=part.window, num_pseudo_heads=P, num_pseudo_keys=None if P_k == P else P_k
        )
    fields = {n: v for n, v in config.to_dict().items() if n not in ("model_type", "layer_types", "sliding_window")}
    return IHAConfig(**{**fields, "layer_schedule": [layer.as_data() for layer in layers]})
