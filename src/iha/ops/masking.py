"""Which keys a query sees, as one value: the visibility rule plus the padding and documents of every sequence."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from iha.ops.visibility import Causality, Visibility

# A Masking as arguments of a torch.library operator: causal, window, P_q, P_k, key_padding_mask, document_ids.
Packed = tuple[str | None, int | None, int, int | None, Tensor | None, Tensor | None]
PACKED_SCHEMA = (
    "str? causal, SymInt? window, SymInt num_pseudo_heads, SymInt? num_pseudo_keys, "
    "Tensor? key_padding_mask, Tensor? document_ids"
)
PACKED_LENGTH = 6  # arguments in that schema


@dataclass(frozen=True, eq=False)  # comparing tensors with == does not give one bool
class Masking:
    """Which virtual keys a virtual query sees. The tensors have one entry per token, not per virtual token."""

    visibility: Visibility
    key_padding_mask: Tensor | None = None  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None  # (B, N) int, attention stays inside a document

    @staticmethod
    def of(
        causal: Causality,
        window: int | None,
        key_padding_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        *,
        num_pseudo_heads: int = 1,
        num_pseudo_keys: int | None = None,
    ) -> "Masking":
        """From the keyword arguments of the mechanisms."""
        rule = Visibility(causal, window, num_pseudo_heads, num_pseudo_keys)
        return Masking(rule, key_padding_mask, document_ids)

    @property
    def keywords(self) -> dict[str, Any]:
        """The masking as the four keyword arguments of every mechanism."""
        return {
            "causal": self.visibility.causal, "window": self.visibility.window,
            "key_padding_mask": self.key_padding_mask, "document_ids": self.document_ids,
        }  # fmt: skip

    @property
    def per_sequence(self) -> bool:
        """Whether the mask may differ between the sequences of a batch."""
        return self.key_padding_mask is not None or self.document_ids is not None

    def ruled_by(self, visibility: Visibility) -> "Masking":
        """The same padding and documents under another rule."""
        return replace(self, visibility=visibility)

    def tile(self, queries: tuple[int, int], keys: tuple[int, int], device: torch.device) -> Tensor:
        """The mask of the query tokens [from, to) and the key tokens [from, to): (1 or B, queries*P_q, keys*P_k) bool.

        A padded token sees only itself, so that no softmax row is empty. The caller zeroes its key and value, so its
        output is zero.
        """
        P_q, P_k = self.visibility.per_token
        i = torch.arange(queries[0] * P_q, queries[1] * P_q, device=device)[:, None]  # (queries*P_q, 1)
        j = torch.arange(keys[0] * P_k, keys[1] * P_k, device=device)[None, :]  # (1, keys*P_k)
        visible = self.visibility(i, j)[None]  # (1, queries*P_q, keys*P_k)
        if not self.per_sequence:
            return visible
        together = torch.ones((), dtype=torch.bool, device=device)
        if (real := self.key_padding_mask) is not None:
            together = real[:, slice(*queries), None] & real[:, None, slice(*keys)]
        if (document := self.document_ids) is not None:
            together = together & (document[:, slice(*queries), None] == document[:, None, slice(*keys)])
        together = together.repeat_interleave(P_q, dim=1).repeat_interleave(P_k, dim=2)  # (B, queries*P_q, keys*P_k)
        return (visible & together) | self.visibility.is_own(i, j)

    def pack(self) -> Packed:
        """The fields as plain types, for torch.library operators."""
        rule = self.visibility
        numbers = rule.num_pseudo_heads, rule.num_pseudo_keys
        return rule.causal, rule.window, *numbers, self.key_padding_mask, self.document_ids

    @staticmethod
    def unpack(
        causal: str | None,
        window: int | None,
        num_pseudo_heads: int,
        num_pseudo_keys: int | None,
        key_padding_mask: Tensor | None,
        document_ids: Tensor | None,
    ) -> "Masking":
        assert causal in ("virtual", "token", None), causal
        rule = Visibility(causal, window, num_pseudo_heads, num_pseudo_keys)  # type: ignore[arg-type]
        return Masking(rule, key_padding_mask, document_ids)
