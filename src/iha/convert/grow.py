"""More pseudo-queries and pseudo-keys in the layers of an IHA model, without a change of its function.

Pseudo-queries are doubled by new ones for which R has a zero. They are those of another head, so the gradient of R says
what they would be worth. Pseudo-keys are doubled by copies. Each of two copies has half of the weight of the key, so
their values may be v + u and v - u for any u. With the value of another head as u, the gradients of the copies differ.
Numbers between are not exact for keys: if only some of the keys had copies, these would get more weight.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.convert.resize import interleaved_layer, rebuilt
from iha.layers.schedule import LayerSpec
from iha.models.modeling import IHAForCausalLM


def grown(model: IHAForCausalLM, numbers: Mapping[int, tuple[int, int]]) -> IHAForCausalLM:
    """The model with (P_q, P_k) pseudo-queries and pseudo-keys in these layers (by number), doubled as often as needed.

    All other weights are shared with it, not copied.
    """
    layers: dict[int, LayerSpec] = {}
    tensors: dict[str, Tensor] = {}
    for index, (P_q, P_k) in numbers.items():
        attention, spec = interleaved_layer(model, index), model.config.layers[index]
        for now, wanted in zip(spec.per_token, (P_q, P_k), strict=True):
            if wanted < now or wanted % now or (wanted // now).bit_count() != 1:
                raise ValueError(f"layer {index}: pseudo-heads grow by doubling, not from {now} to {wanted}")
        alpha_q, alpha_k, alpha_v, R = (tensor.detach() for tensor in attention.mixing)
        while alpha_q.shape[2] < P_q:
            alpha_q, R = with_new_queries(alpha_q, R)
        while alpha_k.shape[2] < P_k:
            alpha_k, alpha_v = with_copied_keys(alpha_k, alpha_v)
        named = {"alpha_q": alpha_q, "alpha_k": alpha_k, "alpha_v": alpha_v, "collapse": R}
        tensors |= {f"model.layers.{index}.self_attn.{name}": tensor.clone() for name, tensor in named.items()}
        layers[index] = replace(spec, num_pseudo_heads=P_q, num_pseudo_keys=None if P_k == P_q else P_k)
    return rebuilt(model, layers, tensors)


def with_new_queries(alpha_q: Tensor, collapse: Tensor) -> tuple[Tensor, Tensor]:
    """alpha_q (H, H', P) and R (H', P) or (H, H'*P) with 2P pseudo-queries; R has a zero for the new ones."""
    P = alpha_q.shape[2]
    new = alpha_q.roll(-P, dims=1)  # of head h: those of head h + P, so that further doublings bring further heads
    return torch.cat((alpha_q, new), dim=2), with_zeros(collapse, P, 2 * P)


def with_copied_keys(alpha_k: Tensor, alpha_v: Tensor) -> tuple[Tensor, Tensor]:
    """alpha_k and alpha_v (G, G', P) with 2P pseudo-keys: copies, whose values differ by those of another head."""
    other = alpha_v.roll(-alpha_v.shape[2], dims=1)
    return torch.cat((alpha_k, alpha_k), dim=2), torch.cat((alpha_v + other, alpha_v - other), dim=2)


def with_zeros(tensor: Tensor, P: int, more: int) -> Tensor:
    """A tensor whose last axis is of P pseudo-heads, or of heads times P, with zeros for all between P and `more`."""
    return F.pad(tensor.unflatten(-1, (-1, P)), (0, more - P)).flatten(-2)
