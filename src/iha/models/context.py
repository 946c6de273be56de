"""What all layers of one forward share: RoPE tables, padding, documents, masks of the decoding step."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from iha.models.configuration import IHAConfig
from iha.models.rotary import IHARotaryEmbedding, Table
from iha.ops.decoding import decoding_positions
from iha.ops.rotary import full_table

# attn_implementation of transformers to our backends; eager returns the weights, which no backend does.
BACKENDS = {"eager": "auto", "sdpa": "auto", "flex_attention": "flex", "flash_attention_2": "flash"}


@dataclass
class Context:
    """What all layers of one forward share."""

    tables: dict[int, Table]  # at positions n*P, by P, widened: (1 or B, N, 1, D)
    pseudo_rotary: dict[int, Table]  # of the offsets 0..P-1, by P: (P, D/2)
    decoding_rotary: dict[int, Table]  # of one new token, by P, widened: (1 or B, P, P, 1, D), after the head axis
    padding: Tensor | None  # (B, tokens so far) bool, True = a real token
    document_ids: Tensor | None  # (B, N)
    implementation: str  # attn_implementation
    masks: dict[Any, Tensor] = field(default_factory=dict)  # of the decoding step, by what they depend on

    @classmethod
    def of(
        cls,
        config: IHAConfig,
        rotary: IHARotaryEmbedding,
        positions: Tensor,  # (1 or B, N)
        padding: Tensor | None,
        document_ids: Tensor | None,
    ) -> "Context":
        strides = {config.rotary_stride(spec) for spec in config.layers}
        tables = {P: full_table(*rotary((positions * P).unsqueeze(-1))) for P in strides}
        offsets, decoding = {}, {}
        for P in strides - {1}:
            offsets[P] = rotary.offsets(torch.arange(P, device=positions.device))
            if positions.shape[1] == 1:
                decoding[P] = full_table(*rotary(decoding_positions(positions, P)))
        return cls(tables, offsets, decoding, padding, document_ids, config._attn_implementation or "sdpa")

    @property
    def backend(self) -> str:
        return BACKENDS[self.implementation]

    def to(self, device: torch.device | str, **_: Any) -> "Context":
        """On another device: what `accelerate` asks of arguments when it spreads layers over several."""

        def moved(tables: dict[int, Table]) -> dict[int, Table]:
            return {P: (cos.to(device), sin.to(device)) for P, (cos, sin) in tables.items()}

        padding, documents = (None if t is None else t.to(device) for t in (self.padding, self.document_ids))
        tables = moved(self.tables), moved(self.pseudo_rotary), moved(self.decoding_rotary)
        return Context(*tables, padding, documents, self.implementation)

    def padding_at(self, first: int, length: int) -> Tensor | None:
        """Of the tokens from `first`, (B, length)."""
        return None if self.padding is None else self.padding[:, first : first + length]
