"""How one forward of a layer is to be done, beside its input."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from iha.layers.rotation import Rotation


@dataclass(frozen=True)
class Shared:
    """What all layers of a model have in common in one forward."""

    rotations: dict[int, Rotation]  # of the new tokens, by the layers' `rotary_stride`
    backend: str  # of the layers that take one
    with_weights: bool = False  # by the plain formula, which has attention weights to show
    biases: dict[Any, Tensor] = field(default_factory=dict)  # of the decoding step, by what they depend on

    def to(self, device: torch.device | str, **_: Any) -> "Shared":
        """On another device: what `accelerate` asks of arguments when it spreads layers over several."""
        rotations = {stride: rotation.to(device) for stride, rotation in self.rotations.items()}
        return Shared(rotations, self.backend, self.with_weights)


class Call(NamedTuple):
    """What a layer's attention is given in one forward."""

    rotation: Rotation | None
    backend: str
    shared: Shared | None

    @property
    def with_weights(self) -> bool:
        return self.shared is not None and self.shared.with_weights

    @property
    def pseudo_rotary(self) -> tuple[Tensor, Tensor] | None:
        """RoPE of the pseudo-heads beyond that of their token, (P, D/2) each; None where they have none."""
        return None if self.rotation is None else self.rotation.pseudo_heads
