"""The schedule: which mechanism each layer of a model has, as data.

The paper's two hybrid schedules have the same pattern: four local layers, then one global layer. They differ in the
local layers: Global+Local has multi-head attention with a window of 512 tokens, IHA has interleaved heads with a window
of N/(2P²). The pattern repeats up to the model's depth. If 5 does not divide the depth, the last repetition is cut off
(the last of the paper's 26 layers is local).
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from iha.layers.base import SelfAttention
from iha.layers.mechanisms import MECHANISMS, find_mechanism
from iha.ops.visibility import Causality, Visibility

LOCAL_WINDOW = 512  # window of the Global+Local baseline, in tokens
GLOBAL_EVERY = 5  # every fifth layer is global: four local layers to one


_OPTIONAL = ("num_pseudo_keys", "num_mixed_heads")  # fields of `LayerSpec` that the paper's layers do not have


@dataclass(frozen=True)
class LayerSpec:
    """One layer's attention."""

    mechanism: str = "multihead"
    window: int | None = None  # in tokens, including the query's own; None is global
    num_pseudo_heads: int = 1  # P, of IHA only
    num_pseudo_keys: int | None = None  # P_k, of IHA only; P when None
    num_mixed_heads: int | None = None  # H', of IHA only; as many as heads when None

    def __post_init__(self) -> None:
        mechanism = find_mechanism(self.mechanism)
        object.__setattr__(self, "mechanism", mechanism.name)  # replace an older name by the current one
        for name in ("window", "num_pseudo_heads", *_OPTIONAL):
            value = getattr(self, name)
            if not (value is None and name != "num_pseudo_heads") and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name, absent in (("num_pseudo_heads", 1), *((name, None) for name in _OPTIONAL)):
            if (value := getattr(self, name)) != absent and not mechanism.has_pseudo_heads:
                raise ValueError(f"{name}={value} cannot be with mechanism={self.mechanism!r}")

    @property
    def is_interleaved(self) -> bool:
        """Whether the layer has mixing weights alpha and R."""
        return find_mechanism(self.mechanism).has_pseudo_heads

    @property
    def per_token(self) -> tuple[int, int]:
        """P_q and P_k."""
        P = self.num_pseudo_heads
        return P, P if self.num_pseudo_keys is None else self.num_pseudo_keys

    def visibility(self, causal: Causality) -> Visibility:
        layer = find_mechanism(self.mechanism).layer
        P = self.num_pseudo_heads if self.is_interleaved else layer.num_pseudo_heads
        return Visibility(causal, self.window, P, self.num_pseudo_keys)

    def as_data(self) -> dict[str, Any]:
        """The fields for config.json; those of the paper's layers always, the others where they are set."""
        return {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value is not None}

    def build(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        depth: int = 0,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        causal: Causality = "virtual",
        rope_theta: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **own: Any,
    ) -> SelfAttention:
        """The layer at this depth of its model (from 0). `own` holds arguments that only this mechanism has."""
        mechanism = find_mechanism(self.mechanism)
        if mechanism.has_pseudo_heads:
            own |= {name: getattr(self, name) for name in ("num_pseudo_heads", *_OPTIONAL)}
        if mechanism.knows_depth:
            own.setdefault("depth", depth)
        return mechanism.layer(
            embed_dim, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, bias=bias, causal=causal,
            window=self.window, rope_theta=rope_theta, device=device, dtype=dtype, **own,
        )  # fmt: skip


Schedule = tuple[LayerSpec, ...]


def repeated(pattern: Schedule, depth: int) -> Schedule:
    """The pattern, repeated and cut off at `depth` layers."""
    if depth < 1:
        raise ValueError(f"depth must be at least 1 layer, got {depth}")
    if not pattern:
        raise ValueError("the pattern has no layer")
    return tuple(pattern[layer % len(pattern)] for layer in range(depth))


def is_global(layer: int, global_every: int | None = GLOBAL_EVERY) -> bool:
    """Whether the layer of this index is the global one of its pattern; never if `global_every` is None."""
    return global_every is not None and layer % global_every == global_every - 1


def with_global_layers(local: Schedule, global_every: int | None = GLOBAL_EVERY) -> Schedule:
    """These layers, with every `global_every`-th replaced by global multi-head attention; None replaces none."""
    if global_every is not None and global_every < 1:
        raise ValueError(f"global_every must be at least 1 layer or None, got {global_every}")
    return tuple(LayerSpec() if is_global(index, global_every) else spec for index, spec in enumerate(local))


def flop_matched_window(num_tokens: int, num_pseudo_heads: int, num_pseudo_keys: int | None = None) -> int:
    """The paper's W = N/(2P²), rounded down; N/(2·P_q·P_k). (docs/mechanisms.md on what it matches.)"""
    P_k = num_pseudo_heads if num_pseudo_keys is None else num_pseudo_keys
    for name, number in (("num_pseudo_heads", num_pseudo_heads), ("num_pseudo_keys", P_k)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    window = num_tokens // (2 * num_pseudo_heads * P_k)
    if window < 1:
        numbers = f"{num_pseudo_heads} pseudo-heads" + ("" if P_k == num_pseudo_heads else f", {P_k} pseudo-keys")
        raise ValueError(f"N/(2P²) leaves no window: {num_tokens} tokens, {numbers}")
    return window


def named_schedule(
    name: str,
    depth: int,
    *,
    num_tokens: int | None = None,  # N; needed by "iha" without a window
    num_pseudo_heads: int = 1,  # P; used by "iha" only
    num_pseudo_keys: int | None = None,  # P_k; used by "iha" only
    window: int | None = None,  # of the local layers; None takes the paper's
) -> Schedule:
    """A schedule by name: the paper's "global", "global_local" or "iha", or a mechanism, used in every layer."""
    if name == "global_local":
        return with_global_layers(repeated((LayerSpec(window=LOCAL_WINDOW if window is None else window),), depth))
    if name == "iha":
        if window is None:
            if num_tokens is None:
                raise ValueError("schedule 'iha' needs num_tokens, for W = N/(2P²), or a window")
            window = flop_matched_window(num_tokens, num_pseudo_heads, num_pseudo_keys)
        return with_global_layers(repeated((LayerSpec("iha", window, num_pseudo_heads, num_pseudo_keys),), depth))
    if name == "global":
        return repeated((LayerSpec(window=window),), depth)
    try:
        mechanism = find_mechanism(name)
    except ValueError:
        raise ValueError(f"schedule must be one of {('global', 'global_local', *MECHANISMS)}, got {name!r}") from None
    return repeated((LayerSpec(mechanism.name, window),), depth)
