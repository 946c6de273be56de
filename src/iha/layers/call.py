"""The settings of one forward of a layer, apart from its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from iha.ops.rotary import Rotation


@dataclass(frozen=True)
class Shared:
    """What all layers of a model share in one forward."""

    # RoPE of the new tokens, keyed by the layers' `rotary_stride`; None where positions are not rotary.
    rotations: Mapping[int, Rotation | None]
    backend: str  # for the layers that take one
    with_weights: bool = False  # use the plain formula and return the attention weights
    decoding_masks: dict[Any, Tensor] = field(default_factory=dict)  # keyed by all that they depend on

    def to(self, device: torch.device | str, **_: Any) -> "Shared":
        """A copy on another device. `accelerate` calls this when it places layers on several devices."""
        rotations = {stride: r if r is None else r.to(device) for stride, r in self.rotations.items()}
        return Shared(rotations, self.backend, self.with_weights)


class Call(NamedTuple):
    """What `attend` and `decode` are given in one forward, besides tensors and masks."""

    rotation: Rotation | None
    backend: str
    shared: Shared | None

    @property
    def with_weights(self) -> bool:
        return self.shared is not None and self.shared.with_weights

    @property
    def pseudo_rotary(self) -> tuple[Tensor, Tensor] | None:
        """cos and sin of the pseudo-heads' offsets from their token, (P, D/2) each; None if they have no offsets."""
        return None if self.rotation is None else self.rotation.pseudo_heads
