"""Which mechanism each layer of a model has: the schedule, as data.

The paper's two hybrid schedules are the same pattern, four local layers and one global, with other local layers:
Global+Local slides multi-head attention over 512 tokens, IHA slides interleaved heads over N/(2P²). The pattern repeats
to the depth asked for; where 5 does not divide it, it breaks off (layer 26 of the paper's 26 is local).
"""

from dataclasses import dataclass
from typing import Any

import torch

from iha.layers.base import SelfAttention
from iha.layers.differential import DifferentialAttention
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.multi_token import MultiTokenAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.simplicial import SimplicialAttention
from iha.layers.strassen import StrassenAttention
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.ops.visibility import Causality

MECHANISMS: dict[str, type[SelfAttention]] = {
    "iha": InterleavedHeadAttention,
    "multihead": MultiHeadAttention,
    "talking_heads": TalkingHeadsAttention,
    "differential": DifferentialAttention,
    "simplicial": SimplicialAttention,
    "knocking_heads": KnockingHeadsAttention,
    "multi_token": MultiTokenAttention,
    "strassen": StrassenAttention,
}
LOCAL_WINDOW = 512  # of the Global+Local baseline, in tokens
LOCAL_LAYERS = 4  # to one global layer
_KNOWS_ITS_DEPTH = ("differential", "multi_token")


@dataclass(frozen=True)
class LayerSpec:
    """One layer's attention."""

    mechanism: str = "multihead"
    window: int | None = None  # in tokens, itself included; None is global
    num_pseudo_heads: int = 1  # P, of "iha" only

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"mechanism must be one of {tuple(MECHANISMS)}, got {self.mechanism!r}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window must be at least 1 token or None, got {self.window}")
        if self.num_pseudo_heads < 1 or (self.num_pseudo_heads > 1 and self.mechanism != "iha"):
            raise ValueError(f"num_pseudo_heads={self.num_pseudo_heads} cannot be with mechanism={self.mechanism!r}")

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
        """The layer, at this depth of its model (from 0). `own` are arguments that only this mechanism has."""
        if self.mechanism == "iha":
            own["num_pseudo_heads"] = self.num_pseudo_heads
        if self.mechanism in _KNOWS_ITS_DEPTH:
            own.setdefault("depth", depth)
        return MECHANISMS[self.mechanism](
            embed_dim, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, bias=bias, causal=causal,
            window=self.window, rope_theta=rope_theta, device=device, dtype=dtype, **own,
        )  # fmt: skip


Schedule = tuple[LayerSpec, ...]


def repeated(pattern: Schedule, depth: int) -> Schedule:
    """The pattern, over and over, up to this many layers."""
    if depth < 1:
        raise ValueError(f"depth must be at least 1 layer, got {depth}")
    if not pattern:
        raise ValueError("the pattern has no layer")
    return tuple(pattern[layer % len(pattern)] for layer in range(depth))


def local_and_global(local: LayerSpec, depth: int, local_layers: int = LOCAL_LAYERS) -> Schedule:
    """So many local layers, then one global multi-head layer, repeated."""
    if local_layers < 0:
        raise ValueError(f"local_layers must be at least 0, got {local_layers}")
    return repeated((local,) * local_layers + (LayerSpec(),), depth)


def flop_matched_window(num_tokens: int, num_pseudo_heads: int) -> int:
    """The paper's W = N/(2P²), rounded down. (docs/mechanisms.md on what it matches.)"""
    if num_pseudo_heads < 1:
        raise ValueError(f"num_pseudo_heads must be at least 1, got {num_pseudo_heads}")
    window = num_tokens // (2 * num_pseudo_heads**2)
    if window < 1:
        raise ValueError(f"N/(2P²) leaves no window: {num_tokens} tokens, {num_pseudo_heads} pseudo-heads")
    return window


def named_schedule(
    name: str,
    depth: int,
    *,
    num_tokens: int | None = None,  # N, of "iha" without a window
    num_pseudo_heads: int = 1,  # P, of "iha"
    window: int | None = None,  # of the local layers; None is the paper's
) -> Schedule:
    """The paper's models by name: "global", "global_local", "iha"; or a mechanism, then in every layer and global."""
    if name == "global_local":
        return local_and_global(LayerSpec(window=LOCAL_WINDOW if window is None else window), depth)
    if name == "iha":
        if window is None:
            if num_tokens is None:
                raise ValueError("schedule 'iha' needs num_tokens, for W = N/(2P²), or a window")
            window = flop_matched_window(num_tokens, num_pseudo_heads)
        return local_and_global(LayerSpec("iha", window, num_pseudo_heads), depth)
    if name != "global" and name not in MECHANISMS:
        raise ValueError(f"schedule must be one of {('global', 'global_local', *MECHANISMS)}, got {name!r}")
    return repeated((LayerSpec("multihead" if name == "global" else name, window),), depth)
