"""Which keys a query sees, as one value: the visibility rule plus the padding and documents of every sequence."""

from dataclasses import dataclass, replace
from functools import cached_property
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

    def key_ranges(self, queries: tuple[int, int], keys: tuple[int, int], device: torch.device) -> tuple | None:
        """The mask of `tile` as ranges: first and last, (1 or B, queries*P_q) int32 each, where that is possible.

        A row sees the virtual keys [first, last), counted from the first of `keys`, and none if first >= last. None if
        a sequence has a document in several pieces, or padding inside a document.
        """
        P_q, P_k = self.visibility.per_token
        i = torch.arange(queries[0] * P_q, queries[1] * P_q, device=device)  # (queries*P_q,)
        first, last = (t[None] for t in self.visibility.key_range(i, keys[1] * P_k))
        if self.per_sequence:
            if self._stretches is None:
                return None
            start, stop = (t[:, slice(*queries)].repeat_interleave(P_q, dim=1) * P_k for t in self._stretches)
            first, last = first.maximum(start), last.minimum(stop)  # (B, queries*P_q)
            if (real := self.key_padding_mask) is not None and P_q == P_k:  # padding sees its own pseudo-key alone
                real = real[:, slice(*queries)].repeat_interleave(P_q, dim=1)
                first, last = torch.where(real, first, i), torch.where(real, last, i + 1)
        bounds = (first - keys[0] * P_k).clamp(min=0), (last - keys[0] * P_k).clamp(max=(keys[1] - keys[0]) * P_k)
        return tuple(t.to(torch.int32).contiguous() for t in bounds)

    @cached_property
    def _stretches(self) -> tuple[Tensor, Tensor] | None:
        """For each token the tokens [start, stop) of its document, (B, N) each. A padded token is its own document."""
        documents, real = self.document_ids, self.key_padding_mask
        like = documents if documents is not None else real
        assert like is not None
        begins = torch.ones(like.shape, dtype=torch.bool, device=like.device)
        begins[:, 1:] = False if documents is None else documents[:, 1:] != documents[:, :-1]
        if real is not None:
            begins[:, 1:] |= ~(real[:, 1:] & real[:, :-1])
        if documents is None or real is not None or not bool((documents[:, 1:] >= documents[:, :-1]).all()):
            # Documents in increasing order are whole. Otherwise each must begin once.
            for b, row in enumerate(begins if real is None else begins & real):
                pieces = int(row.sum())
                if pieces > 1 and (documents is None or len(documents[b][row].unique()) < pieces):
                    return None
        index = torch.arange(like.shape[1], device=like.device)
        start = torch.where(begins, index, 0).cummax(dim=1).values
        ends = torch.where(begins[:, 1:], index[1:], len(index)).flip(1).cummin(dim=1).values.flip(1)
        return start, torch.nn.functional.pad(ends, (0, 1), value=len(index))

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
